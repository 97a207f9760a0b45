"""`sluicegate top` against a server."""

from click.testing import CliRunner

from sluicegate_client.top.cli import top


def test_looks_one_below_the_other(admin_address: str) -> None:
    """Without a terminal each look is printed; the end of the server is an error."""
    done = CliRunner().invoke(top, ["--admin-address", admin_address])
    assert done.output.count("words at 127.0.0.1:1") == 3
    assert (done.exit_code, "the server has stopped" in done.output) == (1, True)


def test_so_many_looks(admin_address: str) -> None:
    """--count ends it well."""
    done = CliRunner().invoke(top, ["--admin-address", admin_address, "--count", "2"])
    assert (done.output.count("words at"), done.exit_code) == (2, 0)


def test_nobody_there() -> None:
    """One line says where nobody is."""
    done = CliRunner().invoke(top, ["--admin-address", "127.0.0.1:9"])
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output
    assert "Traceback" not in done.output
