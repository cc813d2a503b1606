"""Where the client finds credentials, and the mode of the file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from hansei.credentials import (
    Credentials,
    find_file,
    load_credentials,
    resolve_credentials,
    save_credentials,
)
from hansei.errors import ConfigurationError

STORED = Credentials("http://127.0.0.1:8321", "hsk_stored", "default")


def test_saved_file_is_loaded_and_has_mode_0600(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save_credentials(tmp_path / "data", STORED)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == {
        "url": STORED.url, "api_key": "hsk_stored", "tenant": "default",
    }  # fmt: skip
    assert load_credentials(tmp_path / "data") == STORED
    assert caplog.text == ""


def test_saving_replaces_the_file_and_its_mode(tmp_path: Path) -> None:
    path = save_credentials(tmp_path, STORED)
    path.chmod(0o644)
    save_credentials(tmp_path, Credentials("http://other:1", "hsk_new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_credentials(tmp_path) == Credentials("http://other:1", "hsk_new")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["credentials.json"]


def test_file_that_others_can_read_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="hansei")
    save_credentials(tmp_path, STORED).chmod(0o640)
    assert load_credentials(tmp_path) == STORED
    assert "chmod 600" in caplog.text


def test_parent_directories_are_searched_before_home(nobody: Path) -> None:
    assert load_credentials() is None
    save_credentials(nobody / "home" / ".hansei", Credentials("http://home:1", "h"))
    assert load_credentials() == Credentials("http://home:1", "h")
    save_credentials(nobody / ".hansei", Credentials("http://localhost:1", "a"))
    assert load_credentials() == Credentials("http://localhost:1", "a")
    deep = nobody / "here" / "x" / "y"
    deep.mkdir(parents=True)
    save_credentials(nobody / "here" / ".hansei", STORED)
    assert find_file(deep) == nobody / "here" / ".hansei" / "credentials.json"


def test_account_of_the_user_wins_over_a_file_that_came_with_a_clone(nobody: Path) -> None:
    """An MCP server that an agent started in the clone sent tasks to the port that it named."""
    clone = nobody / "here" / ".hansei"
    clone.mkdir()
    fields = {"url": "http://127.0.0.1:8404", "api_key": "hsk_attacker"}
    (clone / "credentials.json").write_text(json.dumps(fields))
    (clone / "credentials.json").chmod(0o600)
    own = Credentials("https://hansei.example", "hsk_own")
    save_credentials(nobody / "home" / ".hansei", own)
    assert resolve_credentials() == own
    save_credentials(clone, STORED)  # `hansei up` in this folder
    assert resolve_credentials() == STORED
    (clone / "credentials.json").write_text("[" * 100)
    assert resolve_credentials() == own


def test_data_dir_is_the_only_directory_searched(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_credentials(nobody / "here" / ".hansei", STORED)
    monkeypatch.setenv("HANSEI_DATA_DIR", str(nobody / "elsewhere"))
    assert load_credentials() is None
    save_credentials(nobody / "elsewhere", Credentials("http://e:1", "e"))
    assert load_credentials() == Credentials("http://e:1", "e")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_ignored(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_credentials(nobody / ".hansei", STORED)
    os.chown(path, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_file() is None
    os.chown(path, 1000, 1000)
    assert find_file() == path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_uses_no_file_that_another_user_left_above(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of root were sent to the service on this machine that it named."""
    path = save_credentials(nobody / ".hansei", STORED)
    os.chown(path, 12345, 12345)
    assert find_file() is None
    monkeypatch.setenv("HANSEI_DATA_DIR", str(path.parent))
    assert find_file() == path


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 1, "api_key": "k"}', '{"url": "http://x"}']
)
def test_invalid_file_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    path = save_credentials(tmp_path, STORED)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"credentials\.json"):
        load_credentials(tmp_path)


def test_arguments_override_the_environment_and_the_file(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_credentials(nobody / "here" / ".hansei", STORED)
    assert resolve_credentials() == STORED
    monkeypatch.setenv("HANSEI_URL", "http://env:1/")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_env")
    assert resolve_credentials() == Credentials("http://env:1", "hsk_env")
    assert resolve_credentials("http://given:1", "hsk_given") == Credentials(
        "http://given:1", "hsk_given"
    )


def test_stored_key_is_not_sent_to_another_url(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_credentials(nobody / "here" / ".hansei", STORED)
    assert resolve_credentials("http://elsewhere:1").api_key is None
    assert resolve_credentials(STORED.url + "/").api_key == "hsk_stored"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example",
        "http://169.254.169.254",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1@evil.example",
        "http://127.0.0.1:80\\@evil.example",
        "http://evil.example/127.0.0.1",
        "http://user@127.0.0.1",
        "http://localhost.evil.example",
        "http://127.0.0.1:8404/containers/create?x=",
        "http://localhost:8404?x=",
        "http://[::1]:8404#x",
    ],
)
@pytest.mark.parametrize("key", ["", "hsk_env"])
def test_file_of_a_cloned_folder_names_this_machine_only(
    nobody: Path, url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a repository contains: neither its key nor one of the environment is sent there."""
    monkeypatch.setenv("HANSEI_API_KEY", key)
    path = save_credentials(nobody / "here" / ".hansei", Credentials(url, "hsk_foreign"))
    with pytest.raises(ConfigurationError, match="only name a service on this machine") as caught:
        resolve_credentials()
    assert str(path) in str(caught.value)
    local = Credentials(STORED.url, "hsk_foreign", worker_metrics_url=url)
    save_credentials(nobody / "here" / ".hansei", local)
    with pytest.raises(ConfigurationError, match="only name a service on this machine"):
        load_credentials()


def test_folder_that_the_user_names_may_name_any_service(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Credentials("https://hansei.example", "hsk_away")
    save_credentials(nobody / "here" / ".hansei", away)
    monkeypatch.setenv("HANSEI_DATA_DIR", ".hansei")
    assert resolve_credentials() == away
    monkeypatch.delenv("HANSEI_DATA_DIR")
    assert load_credentials(".hansei") == away
    (nobody / "here" / ".hansei").rename(nobody / "home" / ".hansei")
    monkeypatch.chdir(nobody / "home")
    assert resolve_credentials() == away
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_env")
    assert resolve_credentials() == Credentials(away.url, "hsk_env")


def test_key_of_the_environment_is_not_sent_to_a_url_of_the_current_folder(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_credentials(nobody / "here" / ".hansei", STORED)
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_env")
    with pytest.raises(ConfigurationError, match="Set HANSEI_URL, too"):
        resolve_credentials()
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_stored")
    assert resolve_credentials() == Credentials(STORED.url, "hsk_stored")


def test_without_credentials_the_error_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="hansei up"):
        resolve_credentials()


def test_key_without_a_url_uses_the_local_service() -> None:
    assert resolve_credentials(api_key="k") == Credentials("http://127.0.0.1:8321", "k")


def test_repr_omits_the_key() -> None:
    assert "hsk_stored" not in repr(STORED)
