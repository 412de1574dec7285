"""Champion against challenger on known rows, and which of two challengers is offered."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import NearestNeighbors

from rtscv_mlops.estimator.gated import GatedClassifier, limits_by_class
from rtscv_mlops.estimator.gates import chunks
from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.estimator.network import torch_seeded
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import Numbers, count, take
from rtscv_mlops.estimator.search import TaughtGate
from rtscv_mlops.facts import (
    CandidateFacts,
    ClassComparison,
    Comparison,
    GroupComparison,
    OfferFacts,
)
from rtscv_mlops.metrics import macro_f
from rtscv_mlops.text import counted, percent, plain
from rtscv_mlops.window import LabelledRows

COMPARED_ROWS = 20_000
"""Known rows that champion and challenger are compared on, at most."""
TESTED_ROWS = 5_000
"""Known rows of the refit that shows how many held-out unknown rows are found, at most."""

FEWEST_LOST_ROWS = 2
# Recalls are quotients: 1 - 0.95 is a little more than 0.05 in binary.
ROUNDING = 1e-9
DEVIATIONS = 1.645
"""Half the width of an interval: 5 % of chance on either side."""

UNSTABLE_SPREAD, UNSTABLE_LEVEL = 0.1, 1e-3
"""Refits differ by more than chance if a class's loss differs this far, at this level."""

GROUP_SHARE, GROUP_LEAST, GROUP_MOST = 0.04, 8, 50
"""Size of a group inside a class: a share of its rows, within these bounds."""
GROUP_LOSS, GROUP_LOST_ROWS = 0.5, 5
"""A group is lost if this share of its rows is, and at least so many rows are."""

SAFE_LOSS = 0.02
"""A refit that loses more of a class is not offered if the gate loses less."""
BETTER = 0.05
"""A lead of this share of held-out unknown rows makes the gate the better challenger."""
FEWEST_FOUND = 0.1
"""A gate that finds fewer of the held-out unknown rows is blind: they lie among known rows ..."""
BLIND_LIMIT = 0.2
"""... so a refit can find them only at the cost of those, and may lose this part of the limit."""
SUSPECT_LEAD = 0.25
"""A refit that finds so many more than the gate takes them, as likely as not, from known rows."""

Rows = Any
"""What a model takes: a DataFrame, or an array for a model that was fitted on one."""


def predict(model: Any, rows: Rows) -> NDArray[Any]:
    """Return a model's answers; booleans as 0 and 1, because a rectified model needs a third."""
    pieces = list(chunks(np.arange(count(rows))))
    if len(pieces) > 1:
        answers = np.concatenate(
            do_all(_predict, ((take(rows, some),) for some in pieces), shared=(model,))
        )
    else:
        answers = _predict(model, rows)
    return answers.astype(int) if answers.dtype == bool else answers


def _predict(model: Any, rows: Rows) -> NDArray[Any]:
    return np.asarray(model.predict(rows)).ravel()


def sample_places(labels: NDArray[Any], max_rows: int, seed: int) -> NDArray[Any]:
    """Return the places of at most this many rows, each class in proportion but none lost."""
    if len(labels) <= max_rows:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    rank = pd.Series(labels[order]).groupby(labels[order]).cumcount().to_numpy()
    return np.sort(np.concatenate([order[rank < 20], order[rank >= 20]])[:max_rows])


# -- answers of both models, row by row


@dataclass(frozen=True, slots=True)
class Answers:
    """What champion and challenger answer for the same known rows, as text.

    `folds` has for each row the refits that held it out; empty if the models themselves answered.
    """

    truth: NDArray[Any]
    champion: NDArray[Any]
    challenger: NDArray[Any]
    folds: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=int))

    @classmethod
    def of(cls, truth: Any, champion: Any, challenger: Any, folds: Any = ()) -> "Answers":
        """Return answers of any type as text."""
        texts = [
            np.asarray(side, dtype=object).astype(str) for side in (truth, champion, challenger)
        ]
        return cls(texts[0], texts[1], texts[2], np.asarray(folds, dtype=int))

    @classmethod
    def of_folds(
        cls, truth: NDArray[Any], predicted: list[NDArray[Any]], folds: NDArray[Any]
    ) -> "Answers":
        """Return the answers of all folds: champion and challenger take turns in `predicted`."""
        sides = np.empty((2, len(truth)), dtype=object)
        for place, answers in enumerate(predicted):
            sides[place % 2, folds == place // 2] = answers
        return cls.of(truth, sides[0], sides[1], folds)

    def where(self, chosen: NDArray[Any]) -> "Answers":
        """Return the answers for some of the rows."""
        folds = self.folds[chosen] if len(self.folds) else self.folds
        return Answers(self.truth[chosen], self.champion[chosen], self.challenger[chosen], folds)

    @property
    def changes(self) -> NDArray[Any]:
        """For each row 1 if only the champion is right, -1 if only the challenger is, else 0."""
        before, after = self.champion == self.truth, self.challenger == self.truth
        changes: NDArray[Any] = before.astype(int) - after.astype(int)
        return changes

    def interval(self) -> tuple[float, float]:
        """Return where the loss lies, chance allowed for, by the rows and by the refits.

        Rows are paired, as in McNemar's test, with half a row added on either side (Agresti and
        Min), so that no lost row does not mean no noise. If refits differ from each other by more
        than their rows explain, their spread is the noise.
        """
        changes = self.changes
        size, lost = len(changes) + 2, int(changes.sum())
        moved = np.count_nonzero(changes) + 1
        variance = float(moved - lost**2 / size) / size**2
        losses = self.fold_losses()
        if len(losses) > 1:
            variance = max(variance, float(np.var(losses, ddof=1)) / len(losses))
        middle, width = lost / size, DEVIATIONS * float(np.sqrt(variance))
        return max(-1.0, middle - width), min(1.0, middle + width)

    def fold_losses(self) -> NDArray[Any]:
        """Return the loss in each fold that has rows."""
        changes = self.changes
        return np.array([changes[self.folds == fold].mean() for fold in np.unique(self.folds)])

    def is_unstable(self) -> bool:
        """Return whether refits differ from each other by more than chance."""
        losses = self.fold_losses()
        if len(losses) < 2 or np.ptp(losses) < UNSTABLE_SPREAD:
            return False
        changes = self.changes
        sizes = np.array([np.sum(self.folds == fold) for fold in np.unique(self.folds)])
        # As if every fold had the share of changed rows that all folds have together.
        variance = (np.count_nonzero(changes) + 1) / len(changes) / sizes
        return bool(
            chi2.sf(np.sum((losses - changes.mean()) ** 2 / variance), len(losses) - 1)
            < UNSTABLE_LEVEL
        )


def compare(
    answers: Answers,
    unknown_label: Any,
    how: str,
    features: pd.DataFrame | None = None,
    taught: Answers | None = None,
) -> Comparison:
    """Return what each known class wins or loses, and how sure that is.

    `features` are of the same rows, to find groups inside a class. `taught` are answers of the
    models themselves for rows that they were fitted on.
    """
    truth, champion, challenger = answers.truth, answers.champion, answers.challenger
    known, unknown, classes, unstable = np.unique(truth), str(unknown_label), [], []
    for label in known:
        of_class = answers.where(truth == label)
        own = None if taught is None else taught.where(taught.truth == label).changes
        classes.append(
            ClassComparison(
                label=label,
                rows=len(of_class.truth),
                champion=float(np.mean(of_class.champion == label)),
                challenger=float(np.mean(of_class.challenger == label)),
                unknown=float(np.mean(of_class.challenger == unknown)),
                loss_interval=of_class.interval(),
                taught_loss=None if own is None or not len(own) else float(own.mean()),
            )
        )
        if of_class.is_unstable():
            losses = 100 * of_class.fold_losses()
            unstable.append(
                f"class {plain(label)!r} loses {losses.min():.0f} to {losses.max():.0f} points"
            )
    return Comparison(
        how=how,
        rows=len(truth),
        champion_accuracy=float(accuracy_score(truth, champion)),
        challenger_accuracy=float(accuracy_score(truth, challenger)),
        champion_macro_f=macro_f(truth, champion, known, unknown),
        challenger_macro_f=macro_f(truth, challenger, known, unknown),
        classes=tuple(sorted(classes, key=lambda one: -one.loss)),
        groups=() if features is None else tuple(find_lost_groups(answers, features)),
        unstable="; ".join(unstable[:3]),
    )


def find_lost_groups(answers: Answers, features: pd.DataFrame) -> Iterator[GroupComparison]:
    """Yield for each class the rows close together of which most are lost, if there are such.

    A class average hides a small group: 4 % of a class may be lost within a limit of 5 %. Lost rows
    that are scattered have neighbours that are not lost; those of a group have each other.
    """
    changes, numbers = answers.changes, None
    for label in np.unique(answers.truth[changes > 0]):
        of_class = np.flatnonzero(answers.truth == label)
        lost = changes[of_class]
        if np.sum(lost > 0) < GROUP_LOST_ROWS:
            continue
        if numbers is None:
            numbers = scale(features)
        size = int(np.clip(round(GROUP_SHARE * len(lost)), GROUP_LEAST, GROUP_MOST))
        near = NearestNeighbors(n_neighbors=min(size, len(lost))).fit(numbers[of_class])
        groups = near.kneighbors(numbers[of_class[lost > 0]], return_distance=False)
        worst = groups[lost[groups].sum(axis=1).argmax()]
        net = lost[worst].sum()
        if net >= max(GROUP_LOST_ROWS, GROUP_LOSS * len(worst)):
            rows = of_class[worst]
            yield GroupComparison(
                label=label,
                rows=len(rows),
                champion=float(np.mean(answers.champion[rows] == label)),
                challenger=float(np.mean(answers.challenger[rows] == label)),
            )


def scale(features: pd.DataFrame) -> NDArray[Any]:
    """Return rows as numbers, each column by its own spread."""
    numbers = Numbers().fit(features).transform(features)
    spread = numbers.std(axis=0)
    scaled = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.clip(scaled, -8, 8))


def find_blocker(
    comparison: Comparison, unknowns: int, *, min_unknowns: int, max_class_loss: float
) -> str:
    """Return why the challenger may not be approved; empty if it may.

    It was taught from too few unknown rows, or a known class, or a group inside of one, loses too
    much. A class counts if its recall falls by more than the limit, at least two of its held-out
    rows are lost, and chance does not explain the loss.
    """
    if unknowns < min_unknowns:
        return (
            f"Only {counted(unknowns, 'row')} could be identified as unknown, fewer than the "
            f"{min_unknowns} that review.min_unknowns asks for: too few to teach a class from. "
            "A longer window would show more."
        )

    def is_beyond(loss: float | None, rows: int) -> bool:
        is_large = loss is not None and loss > max_class_loss + ROUNDING
        return is_large and round((loss or 0.0) * rows) >= FEWEST_LOST_ROWS

    losses = [
        known
        for known in comparison.classes
        if is_beyond(known.loss, known.rows)
        and (known.loss_interval is None or known.loss_interval[0] > 0)
    ]
    if losses:
        worst = max(losses, key=lambda known: known.loss)
        more = counted(len(losses) - 1, "more class", "more classes")
        others = f" {more} too." if losses[1:] else ""
        return (
            f"Class {plain(worst.label)!r} loses too much: the champion finds "
            f"{percent(worst.champion)} of its {counted(worst.rows, 'held-out row')}, the "
            f"challenger {percent(worst.challenger)}, which is "
            f"{round(worst.loss * worst.rows):,} fewer; a class may lose "
            f"{percent(max_class_loss)}, and what chance explains does not count.{others}"
        )
    taught = [known for known in comparison.classes if is_beyond(known.taught_loss, known.rows)]
    if taught:
        worst = max(taught, key=lambda known: known.taught_loss or 0.0)
        return (
            f"Class {plain(worst.label)!r} loses too much: of the rows that both models were "
            f"fitted on, the challenger finds {percent(worst.taught_loss)} fewer than the champion."
        )
    groups = [group for group in comparison.groups if group.loss > max_class_loss + ROUNDING]
    if groups:
        group = max(groups, key=lambda one: one.loss)
        return (
            f"A part of class {plain(group.label)!r} is lost: of {counted(group.rows, 'row')} that "
            f"lie close together, the champion finds {percent(group.champion)}, the challenger "
            f"{percent(group.challenger)}. The class as a whole hides that."
        )
    return ""


# -- two challengers


@dataclass(frozen=True, slots=True)
class Candidate:
    """A challenger, how it compares with the champion, and what it finds of the new class."""

    kind: Literal["refit", "gated"]
    model: Any
    comparison: Comparison
    found: float | None
    tested: int
    blocked: str = ""

    @property
    def worst_loss(self) -> float:
        """The largest loss of a known class; a single row does not count."""
        losses = (
            known.loss
            for known in self.comparison.classes
            if round(known.loss * known.rows) >= FEWEST_LOST_ROWS
        )
        return max(losses, default=0.0)

    @property
    def facts(self) -> dict[str, Any]:
        names = ("kind", "found", "tested", "worst_loss", "blocked")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Offer:
    """The challenger that is offered, the other one, and why."""

    chosen: Candidate
    other: Candidate | None
    why: str

    @property
    def facts(self) -> OfferFacts:
        other = None if self.other is None else CandidateFacts(**self.other.facts)
        return OfferFacts(**self.chosen.facts, why=self.why, other=other)

    @property
    def unstable(self) -> str:
        """How far refits differ from each other, whichever challenger is offered."""
        candidates = [self.chosen] if self.other is None else [self.chosen, self.other]
        return next(filter(None, (one.comparison.unstable for one in candidates)), "")


def block(
    refit: Candidate,
    gated: Candidate | None,
    unknowns: int,
    *,
    min_unknowns: int,
    max_class_loss: float,
) -> tuple[Candidate, Candidate | None]:
    """Return the candidates, each with why it may not be approved."""

    def why(candidate: Candidate, limit: float) -> str:
        return find_blocker(
            candidate.comparison, unknowns, min_unknowns=min_unknowns, max_class_loss=limit
        )

    if gated is None:
        return replace(refit, blocked=why(refit, max_class_loss)), None
    if unknowns < min_unknowns or (gated.found or 0.0) >= FEWEST_FOUND:
        return (
            replace(refit, blocked=why(refit, max_class_loss)),
            replace(gated, blocked=why(gated, max_class_loss)),
        )
    blind = (
        f"The unknown rows lie among known rows: a gate that spares those finds "
        f"{percent(gated.found)} of them."
    )
    lost = why(refit, max_class_loss)
    # Chance does not excuse a loss here: an attacker would aim at just that.
    if not lost and refit.worst_loss > BLIND_LIMIT * max_class_loss:
        lost = f"A refit loses {percent(refit.worst_loss)} of a class for the others."
    return (
        replace(refit, blocked=f"{blind} {lost}" if lost else ""),
        replace(gated, blocked=why(gated, max_class_loss) or blind),
    )


def choose(refit: Candidate, gated: Candidate | None) -> Offer:
    """Return the better challenger: first what loses nothing, then what finds more unknowns.

    Of two that are as good, the refit is offered: it needs nothing but the model's own library.
    """
    refitted = "The champion was refitted with one class more"
    if gated is None:
        return Offer(refit, None, f"{refitted}.")
    if gated.blocked:
        return Offer(refit, gated, f"{refitted}. A gate is not offered: {gated.blocked}")
    found = f"{percent(gated.found)} of held-out unknown rows, a refit {percent(refit.found)}"
    if refit.blocked:
        why = f"A refit may not be approved: {refit.blocked}"
    elif refit.comparison.unstable:
        why = f"Refits differ from each other by more than chance: {refit.comparison.unstable}."
    elif refit.worst_loss > max(SAFE_LOSS, gated.worst_loss):
        why = (
            f"A refit loses {percent(refit.worst_loss)} of a class, the gate at most "
            f"{percent(gated.worst_loss)}."
        )
    elif (gated.found or 0.0) > (refit.found or 0.0) + BETTER:
        why = f"It finds {found}."
    elif (refit.found or 0.0) > (gated.found or 0.0) + SUSPECT_LEAD:
        why = f"It finds {found}, which may take them from known rows."
    else:
        return Offer(refit, gated, f"{refitted}. A gate would find {found}.")
    return Offer(
        gated, refit, f"The champion stays as it is, behind a gate that answers unknown. {why}"
    )


@dataclass(frozen=True, slots=True)
class Contest:
    """Compares challengers with the champion, on rows that their fits did not see.

    `champion` is fitted, `estimator` is its recipe, `label` is what the challengers answer for
    unknown rows.
    """

    champion: Any
    estimator: Any
    known: LabelledRows
    holdout: LabelledRows | None
    unknowns: pd.DataFrame
    label: Any
    seed: int

    def candidates(
        self, refit: Any, taught: TaughtGate | None
    ) -> tuple[Candidate, Candidate | None]:
        """Return the refit and, if the champion can stand behind a gate, the gated champion."""
        tested = self._tested()
        tasks = [self._without(tested)]
        places = sample_places(self.known.labels, COMPARED_ROWS, self.seed)
        sampled = self.known.take(places)
        folds = np.empty(0, dtype=int)
        if self.holdout is None:
            folds = self._folds(sampled)
            tasks += self._pieces(sampled, folds)
        learner = seeded(self.estimator, self.seed)
        found, *predicted = do_all(_fit_and_predict, tasks, shared=(learner, self.seed))
        gated = self._gated(taught)
        if self.holdout is None:
            answers = Answers.of_folds(sampled.labels, predicted, folds)
            by_refit = self._compare_folds(answers, sampled, refit)
            by_gate = None
            if gated is not None and taught is not None:
                by_gate = self._compare_gate(answers, sampled, places, taught)
        else:
            by_refit = self._compare_holdout(refit)
            by_gate = None if gated is None else self._compare_holdout(gated)
        share = float(np.mean(found == self.label)) if len(tested) else None
        first = Candidate("refit", refit, by_refit, share, len(tested))
        if by_gate is None or gated is None or taught is None:
            return first, None
        called = predict(self.champion, self.known.rows(self.unknowns))
        codes = np.searchsorted(gated.known_classes_, called)
        gate_found = float(np.mean(taught.unknown_margins > gated.limits_[codes]))
        return first, Candidate("gated", gated, by_gate, gate_found, len(self.unknowns))

    def _tested(self) -> NDArray[Any]:
        """Return a third of the unknown rows, to be held out from one refit."""
        order = np.random.default_rng(self.seed).permutation(len(self.unknowns))
        return np.sort(order[: len(order) // 3])

    def _without(self, tested: NDArray[Any]) -> tuple[Rows, NDArray[Any], Rows]:
        """Return what a refit without some unknown rows is fitted on, and those rows."""
        known = self.known.take(sample_places(self.known.labels, TESTED_ROWS, self.seed))
        others = self.unknowns.drop(self.unknowns.index[tested])
        rows = self.known.rows(self.unknowns.iloc[tested])
        return *self._with_unknowns(known, others), rows

    def _with_unknowns(
        self, known: LabelledRows, unknowns: pd.DataFrame
    ) -> tuple[Rows, NDArray[Any]]:
        table = pd.concat([known.features, unknowns], ignore_index=True)
        # From a list, so that the type has room for the longest label.
        labels = np.asarray([*known.labels.tolist(), *[self.label] * len(unknowns)])
        return known.rows(table), labels

    def _folds(self, known: LabelledRows) -> NDArray[Any]:
        """Return for each known row the fold that holds it out."""
        smallest = int(np.unique(known.labels, return_counts=True)[1].min())
        splitter = StratifiedKFold(max(2, min(3, smallest)), shuffle=True, random_state=self.seed)
        folds = np.empty(len(known), dtype=int)
        for fold, (_, held_out) in enumerate(splitter.split(known.labels, known.labels)):
            folds[held_out] = fold
        return folds

    def _pieces(
        self, known: LabelledRows, folds: NDArray[Any]
    ) -> Iterator[tuple[Rows, NDArray[Any], Rows]]:
        """Yield for each fold what either model is fitted on, and the rows that it predicts.

        The challenger sees all unknown rows: with fewer of them it would be another model.
        """
        for fold in np.unique(folds):
            part = known.take(np.flatnonzero(folds != fold))
            rows = known.rows(known.features[folds == fold])
            yield part.rows(), part.labels, rows
            yield *self._with_unknowns(part, self.unknowns), rows

    def _gated(self, taught: TaughtGate | None) -> GatedClassifier | None:
        """Return the champion behind the gate; None for a champion that cannot be stored so."""
        if taught is None or not hasattr(self.champion, "get_params"):
            return None
        try:
            return GatedClassifier.around(
                self.champion, taught, self.known.labels, self.label, random_state=self.seed
            )
        except (TypeError, RuntimeError):  # what `clone` raises
            return None

    def _compare_holdout(self, challenger: Any) -> Comparison:
        assert self.holdout is not None
        return compare_on_holdout(self.champion, challenger, self.holdout, self.label)

    def _compare_folds(self, answers: Answers, known: LabelledRows, refit: Any) -> Comparison:
        """Compare refits with and without the unknown rows."""
        rows = known.rows()
        own = Answers.of(known.labels, predict(self.champion, rows), predict(refit, rows))
        how = (
            f"{len(known)} training rows, each held out once from refits of both models; the "
            "challenger's saw all unknown rows"
        )
        return compare(answers, self.label, how, known.features, own)

    def _compare_gate(
        self, answers: Answers, known: LabelledRows, places: NDArray[Any], taught: TaughtGate
    ) -> Comparison:
        """Compare refits of the champion with and without the gate, whose limits others set."""
        margin = np.full(len(self.known), np.nan)
        margin[taught.known] = taught.known_margins
        margin, names = margin[places], np.unique(known.labels)
        codes, scored = np.searchsorted(names, known.labels), np.isfinite(margin)
        by_text = {str(name): code for code, name in enumerate(names)}
        called = np.array([by_text[answer] for answer in answers.champion])
        is_unknown = np.zeros(len(known), dtype=bool)
        for fold in np.unique(answers.folds):
            held_out, others = scored & (answers.folds == fold), scored & (answers.folds != fold)
            limits = limits_by_class(margin[others], codes[others], len(names))
            is_unknown[held_out] = margin[held_out] > limits[called[held_out]]
        challenger = np.where(is_unknown, str(self.label), answers.champion)
        gated = replace(answers, challenger=challenger).where(scored)
        how = (
            f"{scored.sum()} training rows, each held out once from a refit of the champion, from "
            "the gate and from its limits"
        )
        return compare(gated, self.label, how, known.features[scored])


def _fit_and_predict(
    estimator: Any, seed: int, rows: Rows, labels: NDArray[Any], held_out: Rows
) -> Any:
    if not count(held_out):
        return np.empty(0)
    with torch_seeded(estimator, seed):
        return predict(clone(estimator).fit(rows, labels), held_out)


def compare_on_holdout(
    champion: Any, challenger: Any, holdout: LabelledRows, unknown_label: Any
) -> Comparison:
    """Compare the two models themselves on rows that neither was fitted on."""
    rows = holdout.rows()
    answers = Answers.of(holdout.labels, predict(champion, rows), predict(challenger, rows))
    how = f"{len(holdout)} held-out rows that were logged with the champion"
    return compare(answers, unknown_label, how, holdout.features)
