"""KuaiRand's files: official names, found in a folder."""

import pytest

from moac.kuairand import schema
from tests.helpers.kuairand import generated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("files"), rows=300, num_users=30, num_videos=30)


def test_a_variant_is_found_from_any_of_its_folders(folder):
    found = [schema.find(place) for place in (folder.parent, folder, folder / "data")]
    assert found[0] == found[1] == found[2]
    assert found[0].name == "kuairand-pure"
    assert [path.name for path in (*found[0].standard, *found[0].random)] == [
        "log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv", "log_random_4_22_to_5_08_pure.csv",
    ]  # fmt: skip
    assert len(found[0].items) == 1


def test_a_random_log_that_is_given_takes_the_place_of_the_one_beside(folder, tmp_path):
    given = tmp_path / "mine.csv"
    given.write_bytes((folder / "data" / "log_random_4_22_to_5_08_pure.csv").read_bytes())
    found = schema.find(folder, given)
    assert found.random == (given,)
    assert found.tables[-1] == (given, schema.LOG_TABLE)


def test_a_file_that_is_there_twice_is_ambiguous(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "user_features_pure.csv").write_text("user_id\n")
    with pytest.raises(ValueError, match=r"user_features_pure.csv must be there once, got .*/a/.* and .*/b/"):
        schema.find(tmp_path)


def test_every_official_name_is_that_of_one_kind():
    names = [name for kind in schema.KINDS for variant in schema.VARIANTS for name in kind.file_names(variant)]
    assert len(names) == len(set(names))
    assert schema.STANDARD_LOGS[0].file_names("27k")[1] == "log_standard_4_08_to_4_21_27k_part2.csv"
    assert len(schema.USERS) == 31
