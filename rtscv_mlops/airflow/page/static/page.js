"use strict";

// Sends a reviewer's answer to Airflow's own interface, as the user who is logged in, and then
// waits until the record has it. Foreign text is only ever written as text.

const PATIENCE = 120;
const PAUSE = 3000;
const REFUSALS = {
  400: "Airflow did not accept the answer. Reload the page.",
  401: "Your session has ended. Log in to Airflow again, then reload the page.",
  403: "You may not answer this question.",
  404: "The question is gone: its run was cleared or deleted. Reload the page.",
  409: "Somebody has answered already. Reload the page to see what was decided.",
};

const say = (sentence, failed = false) => {
  const status = document.getElementById("status");
  status.textContent = sentence;
  status.classList.toggle("failed", failed);
};

const refusal = async (response) => {
  const known = REFUSALS[response.status] || `Airflow answered with the status ${response.status}.`;
  const body = await response.json().catch(() => ({}));
  return typeof body.detail === "string" && response.status === 403
    ? `${known} Airflow says: ${body.detail}`
    : known;
};

const send = async (form, option) => {
  const reason = document.getElementById("reason").value.trim();
  return fetch(form.dataset.answerTo, {
    method: "PATCH",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      chosen_options: [option],
      params_input: { reason: reason || null, question: `${form.dataset.question}@page` },
    }),
  });
};

const answer = async (form, button) => {
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => { each.disabled = true; });
  say("Sending your answer …");
  try {
    const response = await send(form, button.dataset.option);
    if (response.ok) {
      say("Recorded in Airflow. This page will show the decision in a moment.");
      window.setTimeout(() => window.location.reload(), 1500);
      return;
    }
    say(await refusal(response), true);
  } catch {
    say("Airflow could not be reached, so nothing was recorded. Try again.", true);
  }
  buttons.forEach((each) => { each.disabled = false; });
};

// Airflow resumes its task, and the task writes the record: that takes some seconds.
const waitForRecord = async (attempts) => {
  if (attempts === 0) {
    say("The decision is not in the record yet. Look at the task review_challenger in Airflow.", true);
    return;
  }
  const response = await fetch(window.location.href, { credentials: "same-origin" }).catch(() => null);
  if (response && response.ok) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const decision = page.getElementById("decision");
    if (decision && !decision.dataset.settling) {
      window.location.reload();
      return;
    }
  }
  window.setTimeout(() => waitForRecord(attempts - 1), PAUSE);
};

const form = document.getElementById("answer");
if (form) {
  form.querySelectorAll("button").forEach((button) => {
    button.addEventListener("click", () => answer(form, button));
  });
}
if (document.querySelector("#decision[data-settling]")) {
  say("Waiting for the record …");
  window.setTimeout(() => waitForRecord(PATIENCE), PAUSE);
}
// Within Airflow's frame a link cannot open a window: its address is shown, and copied on a click.
if (window.self !== window.top) {
  document.documentElement.classList.add("framed");
  document.querySelectorAll(".links a").forEach((link) => {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const copied = navigator.clipboard ? navigator.clipboard.writeText(link.href) : Promise.reject();
      copied.then(
        () => { link.nextElementSibling.textContent = `Copied: ${link.href}`; },
        () => window.getSelection().selectAllChildren(link.nextElementSibling),
      );
    });
  });
}
