"""Grey DICOM pictures, in files that pydicom itself has written."""

import sys

import numpy as np
import pytest

from fedivon_app.core.errors import DataError
from fedivon_app.datasets.picture_file import open_picture
from fedivon_app.datasets.sources import load

pydicom = pytest.importorskip("pydicom")

STORED = np.array([[0, 1024, 2048], [3071, 4000, 4095]], np.uint16)


def write(path, stored=STORED, kind="MONOCHROME2", bits=12, **tags):
    """Write a picture, with other tags by their keywords."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data = pydicom.Dataset()
    data.file_meta = meta
    data.SOPClassUID = meta.MediaStorageSOPClassUID
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    data.PhotometricInterpretation = kind
    data.SamplesPerPixel = stored.shape[2] if kind == "RGB" else 1
    if kind == "RGB":
        data.PlanarConfiguration = 0
    elif stored.ndim == 3:
        data.NumberOfFrames = len(stored)
    data.Rows, data.Columns = stored.shape[:2] if kind == "RGB" else stored.shape[-2:]
    data.BitsAllocated = 8 * stored.dtype.itemsize
    data.BitsStored = bits
    data.HighBit = bits - 1
    data.PixelRepresentation = int(stored.dtype.kind == "i")
    for keyword, value in tags.items():
        setattr(data, keyword, value)
    data.PixelData = stored.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)
    return path


def levels(path, values=None):
    return np.asarray(open_picture(path, values)).astype(int)


def test_numbers_become_bytes_by_the_range_that_they_could_have(tmp_path):
    expected = np.rint(STORED / 4095 * 255)
    assert (levels(write(tmp_path / "a.dcm")) == expected).all()
    # neither a rescaling, which moves the ends as well, nor a window for viewing changes that
    tags = {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 80}
    assert (levels(write(tmp_path / "b.dcm", **tags)) == expected).all()
    signed = write(tmp_path / "c.dcm", (STORED.astype(np.int16) - 2048))
    assert (levels(signed) == expected).all()


def test_the_smallest_number_may_be_white(tmp_path):
    black = levels(write(tmp_path / "a.dcm"))
    assert (levels(write(tmp_path / "b.dcm", kind="MONOCHROME1")) == 255 - black).all()


def test_a_range_of_values_is_meant_after_the_rescaling(tmp_path):
    scanner = write(tmp_path / "a.dcm", RescaleSlope=1, RescaleIntercept=-1024)
    other = (STORED.astype(np.int16) - 1024) * 2  # the same, in half units
    twin = write(tmp_path / "b.dcm", other, bits=16, RescaleSlope=0.5, RescaleIntercept=0)
    expected = np.rint(np.clip((STORED - 1024.0 + 1000) / 2000, 0, 1) * 255)
    for file in (scanner, twin):
        assert (levels(file, [-1000, 1000]) == expected).all()


def test_a_folder_of_them_is_a_data_set(tmp_path):
    for part in ("train", "test"):
        for name, step in (("healthy", 0), ("ill", 1000)):
            write(tmp_path / part / name / "1.dcm", np.minimum(STORED, 3000) + np.uint16(step))
    source = load("image-folder", tmp_path, path=tmp_path, channels=1, values=[0, 4095])
    assert source.class_names == ("healthy", "ill") and source.shape == (2, 3, 1)
    assert source.x_train[1, 0, 0] == round(1000 / 4095 * 255)
    write(tmp_path / "train" / "ill" / "2.dcm", STORED[:1])
    with pytest.raises(DataError, match=r"2.dcm: 1x3 pixels, but the others have 2x3"):
        load("image-folder", tmp_path, path=tmp_path, channels=1)


@pytest.mark.parametrize("wrong", [[5], [1, 1], [2, 1], "many", [0, "a"]])
def test_what_is_no_range_is_told(wrong, tmp_path):
    with pytest.raises(DataError, match="values must be two numbers"):
        load("image-folder", tmp_path, path=tmp_path, values=wrong)


def test_what_cannot_be_read_is_told(tmp_path):
    def complaint(file):
        with pytest.raises(DataError) as caught:
            open_picture(file)
        return str(caught.value)

    colours = write(tmp_path / "colours.dcm", np.zeros((2, 3, 3), np.uint8), kind="RGB", bits=8)
    assert "colours.dcm: its pixels are RGB, but only grey ones" in complaint(colours)
    frames = write(tmp_path / "frames.dcm", np.stack([STORED] * 4))
    assert "it has 4 frames: write each to a file of its own" in complaint(frames)
    (tmp_path / "text.dcm").write_text("no picture")
    assert "text.dcm: it is no DICOM file" in complaint(tmp_path / "text.dcm")
    assert "there is no such file" in complaint(tmp_path / "none.dcm")
    empty = pydicom.dcmread(frames)
    del empty.PixelData
    empty.save_as(tmp_path / "empty.dcm")
    assert "empty.dcm: its pixels cannot be read" in complaint(tmp_path / "empty.dcm")


def test_without_pydicom_the_extra_is_named(tmp_path, monkeypatch):
    file = write(tmp_path / "a.dcm")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(DataError, match=r"pip install 'fedivon\[dicom\]'"):
        open_picture(file)
