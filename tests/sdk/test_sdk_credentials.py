"""Where the credentials come from, and who may read them."""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from hansei.credentials import (
    Credentials,
    CredentialsWarning,
    find,
    load,
    resolve,
    save,
)
from hansei.errors import NotConfigured

STORED = Credentials("http://127.0.0.1:8321", "hsk_stored", "default")


def test_saved_is_loaded_and_for_its_owner_only(tmp_path: Path) -> None:
    path = save(tmp_path / "data", STORED)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == {
        "url": STORED.url, "api_key": "hsk_stored", "tenant": "default",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path / "data") == STORED


def test_saving_again_replaces_and_closes_an_open_file(tmp_path: Path) -> None:
    path = save(tmp_path, STORED)
    path.chmod(0o644)
    save(tmp_path, Credentials("http://other:1", "hsk_new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(tmp_path) == Credentials("http://other:1", "hsk_new")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["credentials.json"]


def test_a_file_others_can_read_is_used_with_a_warning(tmp_path: Path) -> None:
    save(tmp_path, STORED).chmod(0o640)
    with pytest.warns(CredentialsWarning, match="chmod 600"):
        assert load(tmp_path) == STORED


def test_the_nearest_folder_above_wins_then_home(nobody: Path) -> None:
    assert load() is None
    save(nobody / "home" / ".hansei", Credentials("http://home:1", "h"))
    assert load() == Credentials("http://home:1", "h")
    save(nobody / ".hansei", Credentials("http://above:1", "a"))
    assert load() == Credentials("http://above:1", "a")
    deep = nobody / "here" / "x" / "y"
    deep.mkdir(parents=True)
    save(nobody / "here" / ".hansei", STORED)
    assert find(deep) == nobody / "here" / ".hansei" / "credentials.json"


def test_a_data_folder_that_is_named_is_the_only_one(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(nobody / "here" / ".hansei", STORED)
    monkeypatch.setenv("HANSEI_DATA_DIR", str(nobody / "elsewhere"))
    assert load() is None
    save(nobody / "elsewhere", Credentials("http://e:1", "e"))
    assert load() == Credentials("http://e:1", "e")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_left_above_is_not_trusted(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(nobody / ".hansei", STORED)
    os.chown(path, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find() is None
    os.chown(path, 1000, 1000)
    assert find() == path


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 1, "api_key": "k"}', '{"url": "http://x"}']
)
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, STORED)
    path.write_text(text)
    with pytest.raises(NotConfigured, match=r"credentials\.json"):
        load(tmp_path)


def test_given_wins_over_environment_over_stored(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(nobody / "here" / ".hansei", STORED)
    assert resolve() == STORED
    monkeypatch.setenv("HANSEI_URL", "http://env:1/")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_env")
    assert resolve() == Credentials("http://env:1", "hsk_env")
    assert resolve("http://given:1", "hsk_given") == Credentials("http://given:1", "hsk_given")


def test_a_stored_key_goes_to_no_other_url(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(nobody / "here" / ".hansei", STORED)
    assert resolve("http://elsewhere:1").api_key is None
    assert resolve(STORED.url + "/").api_key == "hsk_stored"
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_env")
    assert resolve() == Credentials(STORED.url, "hsk_env")


def test_nothing_known_says_what_to_do() -> None:
    with pytest.raises(NotConfigured, match="hansei up"):
        resolve()


def test_a_key_alone_means_this_machine() -> None:
    assert resolve(api_key="k") == Credentials("http://127.0.0.1:8321", "k")


def test_the_key_is_not_shown() -> None:
    assert "hsk_stored" not in repr(STORED)
