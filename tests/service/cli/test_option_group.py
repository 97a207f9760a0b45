"""Options in groups: sections of the help, pieces of the settings."""

import click
from click.testing import CliRunner

from service.cli.option_group import OptionGroup, SectionedCommand

SIZE = OptionGroup(
    "size",
    "Size",
    [click.option("--width", type=int, default=1, help="How wide."), click.option("--height", type=int, default=2)],
    lambda width, height: (width, height),
)


def test_takes_its_own() -> None:
    """A group takes the values of its options out of all values, and makes its piece of them."""
    values = {"width": 3, "height": 4, "color": "red"}
    assert SIZE.take(values) == (3, 4)
    assert values == {"color": "red"}


def test_help_in_sections() -> None:
    """Each group has its section, in order; what is in no group comes last."""

    class Command(SectionedCommand):
        sections = {SIZE.title: SIZE.parameters}

    @click.command(cls=Command)
    @click.argument("wall")
    @click.option("--color", help="Which color.")
    @SIZE.added_to
    def paint(**_: object) -> None:
        pass

    lines = CliRunner().invoke(paint, ["--help"]).output.splitlines()
    size, others = lines.index("Size:"), lines.index("Options:")
    assert size < others
    assert [line.split()[0] for line in lines[size + 1 : size + 3]] == ["--width", "--height"]
    assert [line.split()[0] for line in lines[others + 1 : others + 3]] == ["--color", "--help"]
