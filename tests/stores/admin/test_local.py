"""Directories as buckets."""

import pytest

from rootcellar.errors import UsageError
from rootcellar.stores import FileStore
from rootcellar.stores.admin.local import LocalAdmin
from rootcellar.stores.admin.values import Aspect, BucketWish, Outcome
from tests.stores.admin.contract import WISH, Contract, Place, fill


class TestLocal(Contract):
    @pytest.fixture
    def place(self, tmp_path):
        root = tmp_path / "buckets" / "seed"
        return Place(
            lambda: LocalAdmin(root),
            lambda prefix: FileStore(root / prefix),
            lambda: sorted(
                str(path.relative_to(root))
                for path in root.rglob("*")
                if path.is_file() and path.name != ".lock"
            ),
        )

    def test_a_directory_that_others_may_read_is_drift(self, made, tmp_path):
        root = tmp_path / "buckets" / "seed"
        root.chmod(0o775)
        done = made.harden(WISH, made.look()).done
        assert [change.aspect for change in done] == [Aspect.PUBLIC_ACCESS]
        assert root.stat().st_mode & 0o777 == 0o700

    def test_a_directory_for_several_users_is_made_as_gardener_has_it(self, admin, tmp_path):
        wish = BucketWish(public_access_blocked=False)
        admin.create(wish)
        assert (tmp_path / "buckets" / "seed").stat().st_mode & 0o777 == 0o775
        assert admin.harden(wish, admin.look()).done == ()

    def test_a_symlink_is_removed_and_not_followed(self, place, made, tmp_path):
        precious = tmp_path / "precious" / "v2"
        precious.mkdir(parents=True)
        (precious / "x").write_text("kept")
        fill(place, "shoot--a/v2/y")
        root = tmp_path / "buckets" / "seed"
        (root / "shoot--a" / "linked").symlink_to(precious.parent)
        (root / "shoot--a" / "file").symlink_to(precious / "x")
        assert made.delete_objects("shoot--a").gone
        assert (precious / "x").read_text() == "kept"
        assert not (root / "shoot--a").exists()

    def test_a_directory_swapped_for_a_symlink_leads_nowhere(self, place, made, tmp_path):
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "x").write_text("kept")
        fill(place, "shoot--a/v2/x")
        folder = tmp_path / "buckets" / "seed" / "shoot--a" / "v2"

        asked = []

        def swapped():
            """Asked for the second time between the listing and the deletion of what was listed."""
            asked.append(folder)
            if len(asked) == 2:
                (folder / "x").unlink()
                folder.rmdir()
                folder.symlink_to(precious)
            return False

        with pytest.raises(UsageError, match="symlink"):
            made.delete_objects("shoot--a", stop=swapped)
        assert (precious / "x").read_text() == "kept"

    def test_temporary_files_of_dead_writers_go_too(self, place, made, tmp_path):
        fill(place, "shoot--a/x")
        (tmp_path / "buckets" / "seed" / "shoot--a" / ".put-dead").write_bytes(b"half")
        assert made.delete_objects("shoot--a").gone
        assert place.found() == []

    def test_a_bucket_with_empty_directories_alone_is_empty(self, made, tmp_path):
        (tmp_path / "buckets" / "seed" / "shoot--a" / "v2").mkdir(parents=True)
        assert list(made.prefixes()) == []
        made.delete_bucket()
        assert made.look() is None
        assert made.create(WISH) is Outcome.CREATED
