"""``python -m bench.quality``: next-token distributions beside those of float32 on the same weights."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.gateways.model_option import model_option
from bench.peers.environment import PeerEnvironment
from bench.quality.library import llama_cpp, transformers
from bench.quality.material import WINDOW_TOKENS, answers, text_windows
from bench.quality.score import Score
from bench.quality.sluicegate import Sluicegate
from bench.quality.window import LanguageModel, Logits, Window

_TABLE_WIDTH = 120
_PROGRESS = Console(stderr=True)
_REFERENCE_PROMPTS = Path(__file__).parents[2] / "tests/data/reference/smollm2_135m_q4_1.json"


@dataclass
class Scores:
    """Of one model."""

    text: Score = field(default_factory=Score)
    prompts: Score = field(default_factory=Score)

    def figures(self) -> dict[str, float]:
        return {
            "KL divergence, text, nats": self.text.divergence,
            "its median": self.text.median_divergence,
            "perplexity, text": self.text.perplexity,
            "KL divergence, prompts, nats": self.prompts.divergence,
            "its median, prompts": self.prompts.median_divergence,
            "perplexity, prompts and answers": self.prompts.perplexity,
            "greedy tokens alike": self.prompts.num_agreeing,
            "of those with a wide margin": self.prompts.num_decisive,
        }


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@model_option
@click.option(
    "--prompts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=_REFERENCE_PROMPTS,
    help="Prompts with the tokens and margins that float32 gives.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures there.")
def main(model: Path, prompts: Path, json_path: Path | None) -> None:
    """Compare what our server and llama.cpp make of quantized weights with float32 on the same, dequantized."""
    _check_installed()
    with ExitStack() as stack:
        models = dict(_models(model, stack))
        scores = _score(model, prompts, models)
    figures = {name: of_model.figures() for name, of_model in scores.items()}
    Console(width=_TABLE_WIDTH).print(_table(figures))
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=2) + "\n")


def _check_installed() -> None:
    missing = [name for name in ("transformers", "llama-server") if not PeerEnvironment(name).complete.exists()]
    if missing:
        raise click.ClickException(f"first: python -m bench.peers install {' '.join(missing)}")


def _models(model: Path, stack: ExitStack) -> Iterator[tuple[str, LanguageModel]]:
    """The reference first."""
    (gguf,) = model.glob("*.gguf")
    yield "transformers, float32", stack.enter_context(transformers(gguf, WINDOW_TOKENS))
    for quantization in ("none", "auto"):
        yield f"sluicegate {quantization}", Sluicegate(model, quantization, WINDOW_TOKENS)
    yield "llama.cpp", stack.enter_context(llama_cpp(gguf, WINDOW_TOKENS))


def _score(model: Path, prompts: Path, models: Mapping[str, LanguageModel]) -> dict[str, Scores]:
    scores = {name: Scores() for name in models}
    for window in track([*text_windows(model)], "text", console=_PROGRESS):
        for name, logits, reference in _logits(models, window):
            scores[name].text.add(window.token_ids, logits, reference)
    for answer in track([*answers(prompts)], "prompts", console=_PROGRESS):
        for name, logits, reference in _logits(models, answer.window):
            scores[name].prompts.add(answer.window.token_ids, logits, reference)
            scores[name].prompts.add_greedy(logits, answer.decisive)
    return scores


def _logits(models: Mapping[str, LanguageModel], window: Window) -> Iterator[tuple[str, Logits, Logits]]:
    """Name, logits, and the reference's, of one model after the other."""
    reference: Logits | None = None
    for name, of_name in models.items():
        logits = of_name.logits(window)
        reference = logits if reference is None else reference
        yield name, logits, reference


def _table(figures: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("", *figures)
    for title in next(iter(figures.values())):
        table.add_row(title, *(_number(of_model[title]) for of_model in figures.values()))
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"


if __name__ == "__main__":
    main()
