"""Pictures in files: what Pillow reads, and grey DICOM pictures by pydicom (the extra `dicom`).

A DICOM file stores numbers of up to 16 bits, and how they are rescaled to a quantity such as
Hounsfield units. These are brought to bytes in the same way for all files: by the range of values
that the reader is given or, without one, by the range that the file's numbers could have. Windows,
which files suggest for viewing, are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import one_line

if TYPE_CHECKING:
    from PIL import Image

DICOM = {".dcm", ".dicom"}
SUFFIXES = {
    *DICOM,
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
}
INVERTED = "MONOCHROME1"  # the smallest number is white
GREY = (INVERTED, "MONOCHROME2")


def is_picture(file: Path) -> bool:
    """Tell by its suffix whether a file is a picture; hidden files are not."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def open_picture(file: Path, values: Sequence[float] | None = None) -> Image.Image:
    """Return the picture in a file; a DataError says why there is none.

    `values` are those of a DICOM file that become black and white.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if file.suffix.lower() in DICOM:
            return Image.fromarray(dicom_levels(file, values))
        with Image.open(file) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        why = f"{error.strerror}" if isinstance(error, OSError) and error.strerror else "damaged"
        if isinstance(error, UnidentifiedImageError):
            why = "in no format that Pillow knows"
        raise DataError(f"{file}: not a readable picture ({why}).") from error


def dicom_levels(file: Path, values: Sequence[float] | None = None) -> np.ndarray:
    """Return the grey levels of a DICOM picture, (H, W) bytes, black as 0; see `open_picture`."""
    pydicom = _pydicom(file)
    try:
        data = pydicom.dcmread(file)
        kind = data.PhotometricInterpretation
        stored = data.pixel_array
        signed = data.PixelRepresentation == 1
        bits = data.BitsStored
        ends = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] if signed else [0, 2**bits - 1])
        rescaled = pydicom.pixels.apply_modality_lut(stored, data)
        low, high = sorted(values or pydicom.pixels.apply_modality_lut(ends, data).tolist())
    except pydicom.errors.InvalidDicomError:
        raise DataError(f"{file}: it is no DICOM file.") from None
    except (AttributeError, KeyError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{file}: its pixels cannot be read: {one_line(error)}") from None
    if kind not in GREY:
        raise DataError(
            f"{file}: its pixels are {kind}, but only grey ones are read ({' or '.join(GREY)})."
        )
    if stored.ndim != 2:
        raise DataError(f"{file}: it has {len(stored)} frames: write each to a file of its own.")
    levels: np.ndarray = np.rint(np.clip((rescaled - low) / (high - low), 0, 1) * 255).astype(
        np.uint8
    )
    return 255 - levels if kind == INVERTED else levels


def checked_values(values: Sequence[float] | None) -> Sequence[float] | None:
    """Return a range of values, if it is one."""
    if values is None:
        return None
    numbers = isinstance(values, list | tuple) and all(isinstance(v, int | float) for v in values)
    if not numbers or len(values) != 2 or not values[0] < values[1]:
        raise DataError(
            "image-folder: values must be two numbers, the one that becomes black and the one "
            f"that becomes white, such as [-1000, 1000], not {values!r}."
        )
    return values


def _pydicom(file: Path) -> ModuleType:
    try:
        import pydicom
        import pydicom.pixels
    except ImportError:
        raise DataError(
            f"{file}: DICOM files need pydicom: install it with pip install 'fedivon[dicom]'"
        ) from None
    return pydicom
