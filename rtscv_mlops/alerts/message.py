"""What an alert says: as a subject, as plain text, and as JSON.

Knows facts and links; text that comes from data is made harmless for mail and chat alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rtscv_mlops.alerts.rule import AlertDecision
from rtscv_mlops.facts import ClusterCard, WindowFacts
from rtscv_mlops.text import (
    counted,
    inert,
    inert_line,
    percent,
    plain,
    probability,
    rate,
    safe_link,
    safe_path,
    shell_word,
    verdict_text,
    window_name,
)

SCHEMA_VERSION = 1
MAX_CLUSTERS = 5


@dataclass(frozen=True, slots=True)
class Alert:
    """One message about one window; every channel renders it."""

    facts: WindowFacts
    why: str
    links: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """The challenger that the window made; empty if it made none."""

    @property
    def key(self) -> str:
        """The same for every try to send this alert, so that a receiver can drop copies."""
        return self.facts.key

    @property
    def severity(self) -> str:
        return "error" if self.facts.detected else "warning"

    @property
    def subject(self) -> str:
        facts = self.facts
        found = rate(facts.unknown_rate, facts.unknown_rate_interval) if facts.detected else ""
        verdict = f"{inert_line(verdict_text(facts.verdict))}{': ' if found else ''}{found}"
        return f"[rtscv] {inert_line(facts.model, 60)} {window_name(facts)}: {verdict}"

    @property
    def text(self) -> str:
        facts = self.facts
        lines = [
            inert_line(facts.headline, 400),
            "",
            f"Monitor: {inert_line(facts.monitor)}",
            f"Model: {inert_line(facts.model)}{self._version()}",
            f"Window: {window_name(facts)}, {counted(facts.rows, 'row')}",
            f"Verdict: {inert_line(verdict_text(facts.verdict))}",
            *self._findings(),
            *([f"Challenger: version {inert_line(self.version, 20)}"] if self.version else []),
            *([f"Next: {self.next_step}"] if self.next_step else []),
            f"Why this alert: {inert_line(self.why, 300)}",
            *(f"{name}: {target}" for name, target in self.links.items()),
        ]
        return "\n".join(lines)

    @property
    def next_step(self) -> str:
        """The command to go on with; empty where there is nothing to do but to look."""
        file = f"{shell_word(self.facts.monitor, 'monitor')}.yaml"
        if not self.facts.assessed:
            return f"rtscv-mlops check {file}"
        if not self.version:
            return ""
        return f"rtscv-mlops review show {file} --version {shell_word(self.version, 'N')}"

    def _version(self) -> str:
        """Name the champion; a window may fail before anybody has asked which it is."""
        version = inert_line(self.facts.champion_version, 20)
        return f", version {version}" if version else ""

    def _findings(self) -> list[str]:
        facts = self.facts
        lines = [f"Evidence: {probability(facts.p_value)}"] if facts.assessed else []
        if facts.detected:
            share = rate(facts.unknown_rate, facts.unknown_rate_interval)
            lines.append(f"Unknowns: {counted(facts.unknowns, 'row')}, {share}")
        lines += map(_group, facts.clusters[:MAX_CLUSTERS])
        if facts.blocked:
            lines.append(f"The challenger is blocked: {inert_line(facts.blocked, 300)}")
        return lines

    def payload(self) -> dict[str, Any]:
        """Return the alert as JSON; `text` is what chat services show."""
        facts = self.facts
        return {
            "schema_version": SCHEMA_VERSION,
            "idempotency_key": self.key,
            "severity": self.severity,
            "monitor": inert_line(facts.monitor),
            "model": inert_line(facts.model),
            "champion_version": inert_line(facts.champion_version, 20),
            "challenger_version": inert_line(self.version, 20),
            "window_start": facts.window_start.isoformat(),
            "window_end": facts.window_end.isoformat(),
            "verdict": inert_line(facts.verdict),
            "headline": inert_line(facts.headline, 400),
            "rows": facts.rows,
            "sampled": facts.sampled,
            "unknowns": facts.unknowns if facts.assessed else None,
            "unknown_rate": _finite(facts.unknown_rate),
            "unknown_rate_interval": facts.unknown_rate_interval
            and tuple(map(_finite, facts.unknown_rate_interval)),
            "p_value": _finite(facts.p_value),
            "clusters": len(facts.clusters),
            "blocked": inert_line(facts.blocked, 300),
            "why": inert_line(self.why, 300),
            "next": self.next_step,
            "links": dict(self.links),
            "text": f"{self.subject}\n{self.text}",
        }


def make_alert(
    facts: WindowFacts, decision: AlertDecision, links: Mapping[str, str], version: str = ""
) -> Alert:
    """Return the alert for a window; links are web addresses or, as text, paths and commands."""
    targets = {
        inert_line(name, 40): safe_link(target) or _path(target) for name, target in links.items()
    }
    return Alert(facts, decision.why, targets, version)


def _path(target: str) -> str:
    return str(inert(plain(safe_path(target) or target, 300)))


def _finite(value: float | None) -> float | None:
    """Return what JSON can hold."""
    return value if value is not None and isfinite(value) else None


def _group(card: ClusterCard) -> str:
    called = [f"{inert_line(label, 40)} ({percent(part)})" for label, part in card.called.items()]
    said = f", called {', '.join(called[:2])} by the champion" if called else ""
    return f"- group {card.number}: {counted(card.size, 'row')}{said}"
