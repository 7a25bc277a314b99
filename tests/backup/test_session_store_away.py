"""A store that goes away between a cut and its put: nothing that was taken off the watch may be lost."""

from __future__ import annotations

import pytest

from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.session import CaptureOptions, Session
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import chains
from rootcellar.errors import RootcellarError, TransientError, UsageError
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.backup.capture_scene import WRITER, a_scene


class Blind(StoreDecorator):
    """A store whose claims cannot be listed while `error` is set."""

    error: RootcellarError | None = None

    def list(self, prefix="", *, after=""):
        if self.error is not None and prefix.startswith(keys.CLAIMS):
            raise self.error
        return self.inner.list(prefix, after=after)


@pytest.mark.parametrize("error", [TransientError("away"), UsageError("no directory")])
def test_changes_that_were_cut_while_the_store_could_not_be_asked_are_stored_later(etcd, tmp_path, error):
    store = Blind(FileStore(tmp_path / "store"))
    with a_scene(etcd, "3.6", store) as scene:
        scene.full()
        options = CaptureOptions(limits=DeltaLimits(age=1e9))
        with Session(scene.client, store, writer=WRITER, options=options) as session:
            first = scene.write(3)
            store.error = error
            with pytest.raises(type(error)):
                session.collect()
            store.error = None
            last = scene.write(2)
            assert session.collect().revision == last
        chain = chains(read_catalogue(store), 1)[-1]
        assert (chain.gap, chain.reach, last - first) == (None, last, 2)
        scene.must_equal(scene.restored(), first, last)
