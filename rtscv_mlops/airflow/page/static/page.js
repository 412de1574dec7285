"use strict";

// Sends a reviewer's answer to be recorded, as the user who is logged in, and then wakes Airflow's
// task. Foreign text is only ever written as text.

const PATIENCE = 120;
const PAUSE = 3000;
const REFUSALS = {
  400: "The answer was not accepted. Reload the page.",
  401: "Your session has ended. Log in to Airflow again, then reload the page.",
  403: "You may not do this.",
  404: "It is gone: its run was cleared or deleted. Reload the page.",
  409: "This was refused. Reload the page to see what was decided.",
};

const write = (status, sentence, failed) => {
  status.textContent = sentence;
  status.classList.toggle("failed", failed);
};

const say = (sentence, failed = false) => write(document.getElementById("status"), sentence, failed);

const refusal = async (response) => {
  const known = REFUSALS[response.status] || `The server answered with the status ${response.status}.`;
  const body = await response.json().catch(() => ({}));
  return typeof body.detail === "string" ? `${known} ${body.detail}` : known;
};

const sendJson = (address, method, body) => fetch(address, {
  method,
  credentials: "same-origin",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

const answer = async (form, option, reason) => {
  const { answerTo, closeAt, question, version } = form.dataset;
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => { each.disabled = true; });
  say("Recording your answer …");
  try {
    const response = await sendJson(answerTo, "POST", { version, question, option, reason });
    if (response.ok) {
      say("Recorded. This page will show the decision in a moment.");
      // The record counts; this only spares the waiting task its next look at it.
      await sendJson(closeAt, "PATCH", {
        chosen_options: [option],
        params_input: { reason: reason || null, question },
      }).catch(() => null);
      window.setTimeout(() => window.location.reload(), 1500);
      return;
    }
    say(await refusal(response), true);
  } catch {
    say("The server could not be reached. Reload the page to see whether the answer was recorded.", true);
  }
  buttons.forEach((each) => { each.disabled = false; });
};

// The second look: what exactly is about to be decided, and why.
const confirmAnswer = (form, option) => {
  const reason = document.getElementById("reason").value.trim();
  if (form.dataset.needsReason && !reason) {
    say("A decision needs a reason: say what you looked at.", true);
    document.getElementById("reason").focus();
    return;
  }
  say("");
  const panel = document.getElementById("confirm");
  const yes = document.getElementById("confirm-yes");
  document.getElementById("confirm-title").textContent = `${option} version ${form.dataset.version}?`;
  document.getElementById("confirm-reason").textContent = reason || "No reason given.";
  panel.querySelectorAll("[data-effect]").forEach((each) => {
    each.hidden = each.dataset.effect !== option;
  });
  yes.textContent = `${option} version ${form.dataset.version}`;
  yes.className = option.toLowerCase();
  yes.onclick = () => answer(form, option, reason);
  panel.hidden = false;
  yes.focus();
};

const judgeAgain = async (place) => {
  const status = document.getElementById("again-status");
  const button = place.querySelector("button");
  button.disabled = true;
  write(status, "Asking Airflow …", false);
  const body = { logical_date: null, conf: { window: place.dataset.window } };
  try {
    const response = await sendJson(place.dataset.runsAt, "POST", body);
    if (response.ok) {
      write(status, "Airflow judges this window again. Reload the page in a few minutes.", false);
      return;
    }
    write(status, await refusal(response), true);
  } catch {
    write(status, "Airflow could not be reached. Try again.", true);
  }
  button.disabled = false;
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
  form.querySelectorAll("button[data-option]").forEach((button) => {
    button.addEventListener("click", () => confirmAnswer(form, button.dataset.option));
  });
  document.getElementById("confirm-no").addEventListener("click", () => {
    document.getElementById("confirm").hidden = true;
  });
}
const again = document.getElementById("again");
if (again) {
  again.querySelector("button").addEventListener("click", () => judgeAgain(again));
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
