"""`sluicegate lora` and the client under it, against a server of its own."""

from click.testing import CliRunner, Result

from sluicegate_client.lora_cli import lora


def run(admin_address: str, *arguments: str) -> Result:
    return CliRunner().invoke(lora, ["--admin-address", admin_address, *arguments])


def test_adapters_come_and_go(admin_address: str) -> None:
    """A relative path is one from here."""
    assert run(admin_address, "load", "a", "/a").exit_code == 0
    assert run(admin_address, "load", "b", "adapters/b").exit_code == 0
    listed = run(admin_address, "list").output.splitlines()
    assert listed[0] == "a\t/a"
    assert listed[1].startswith("b\t/")
    assert listed[1].endswith("/adapters/b")
    assert run(admin_address, "unload", "a").exit_code == 0
    assert run(admin_address, "list").output.splitlines() == listed[1:]


def test_the_list_of_commands_is_not_cut_off() -> None:
    """Each has a help that fits its line."""
    assert "..." not in CliRunner().invoke(lora, ["--help"], terminal_width=80).output.partition("Commands:")[2]


def test_failures_are_one_line(admin_address: str) -> None:
    """With the server's own message."""
    run(admin_address, "load", "a", "/a")
    for arguments, message in (
        (("load", "a", "/b"), "Error: the name 'a' is taken"),
        (("unload", "x"), "Error: no LoRA adapter 'x' is loaded"),
    ):
        done = run(admin_address, *arguments)
        assert (done.exit_code, done.output.strip()) == (1, message)
