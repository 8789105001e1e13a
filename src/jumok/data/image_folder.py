"""A folder or a zip of images, each by its name."""

import os
import unicodedata
from functools import cached_property
from pathlib import Path

from jumok.data.images import MOST_BYTES, Pixels, decode_image, read_image
from jumok.data.zips import open_zip, read_member
from jumok.errors import DataError


def composed(name: str) -> str:
    """A name with every syllable as one character."""
    return unicodedata.normalize("NFC", name)


class ImageFolder:
    """A folder or a zip of images, by name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._zip = open_zip(self.path) if self.path.suffix == ".zip" and self.path.exists() else None
        if self._zip is None and not self.path.is_dir():
            what = "is a file, neither a folder nor a .zip" if self.path.exists() else "does not exist"
            raise DataError(f"images.path = {str(path)!r} {what}")
        self._infos = {} if self._zip is None else {info.filename: info for info in self._zip.infolist()}

    def __contains__(self, image: str) -> bool:
        return self._has(self._found(image))

    def is_outside(self, image: str) -> bool:
        """Whether a name, with .. in it or beginning at the root, leads out of the folder."""
        home = os.path.abspath(self.path)
        return self._zip is None and not Path(os.path.normpath(Path(home, image))).is_relative_to(home)

    def names(self) -> list[str]:
        """The files there are, as captions name them."""
        if self._zip is not None:
            return [name for name in self._infos if not name.endswith("/")]
        return [path.relative_to(self.path).as_posix() for path in sorted(self.path.rglob("*")) if path.is_file()]

    def facts(self, image: str) -> tuple[int, int]:
        """Bytes of an image, and in a zip its checksum; -1 of what is not there."""
        image = self._found(image)
        if not self._has(image):
            return -1, -1
        if self._zip is None:
            return (self.path / image).stat().st_size, -1
        return self._infos[image].file_size, self._infos[image].CRC

    def read(self, image: str) -> Pixels:
        """One image in its own size."""
        image = self._found(image)
        if self._zip is None:
            return read_image(self.path / image)
        return decode_image(read_member(self._zip, self._infos[image], most=MOST_BYTES), f"{self.path}:{image}")

    def _found(self, image: str) -> str:
        """The name of an image as it is written here."""
        return image if image.isascii() or self._has(image) else self._composed.get(composed(image), image)

    def _has(self, image: str) -> bool:
        return image in self._infos if self._zip is not None else (self.path / image).is_file()

    @cached_property
    def _composed(self) -> dict[str, str]:
        """A Mac writes the syllables of file names in letters; captions rarely do."""
        return {composed(name): name for name in self.names() if not name.isascii()}
