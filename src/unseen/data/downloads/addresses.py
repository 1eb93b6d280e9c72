"""Where datasets can be fetched without an account, with what is published about the files."""

from unseen.data.downloads.transfer import Download

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_DOMAINNET = "http://csr.bu.edu/ftp/visda/2019/multi-source"
_WILDS = "https://worksheets.codalab.org/rest/bundles"
_PHOTOGRAPHS = "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR"


def _mnist(folder: str = "") -> tuple[Download, ...]:
    checksums = {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    return tuple(
        Download(f"{_MNIST}/{file}", f"{folder}{file}", f"md5:{checksum}")
        for file, checksum in checksums.items()
    )


def _domainnet() -> tuple[Download, ...]:
    archives = (
        *("groundtruth/clipart", "infograph", "groundtruth/painting"),
        *("quickdraw", "real", "sketch"),
    )
    files: list[Download] = []
    for archive in archives:
        domain = archive.rpartition("/")[2]
        for part in ("train", "test"):
            file = f"{domain}_{part}.txt"
            files.append(Download(f"{_DOMAINNET}/domainnet/txt/{file}", file))
        files.append(Download(f"{_DOMAINNET}/{archive}.zip", f"{domain}.zip", unpack_to=""))
    return tuple(files)


def _wilds(bundle: str, name: str, size: int) -> tuple[Download, ...]:
    address = f"{_WILDS}/{bundle}/contents/blob/"
    return (Download(address, f"{name}.tar.gz", about_bytes=size, unpack_to=""),)


_USPS = (
    Download(f"{_LIBSVM}/usps.bz2", "USPS/usps.bz2", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
    Download(f"{_LIBSVM}/usps.t.bz2", "USPS/usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
)
_HOUSES = tuple(
    Download(f"{_SVHN}/{file}", f"SVHN/{file}", f"md5:{checksum}")
    for file, checksum in (
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    )
)
_BSDS500 = Download(
    f"{_PHOTOGRAPHS}/BSR_bsds500.tgz", "BSR_bsds500.tgz", about_bytes=70_763_455, unpack_to=""
)

DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist": _mnist(),
    "rotated_mnist": _mnist(),
    "colored_mnist": _mnist(),
    "mnist_m": (*_mnist("MNIST/"), _BSDS500),
    "digits_5": (*_mnist("MNIST/"), _BSDS500, *_USPS, *_HOUSES),
    "domainnet": _domainnet(),
    "camelyon17": _wilds("0xe45e15f39fb54e9d9e919556af67aabe", "camelyon17", 10_658_709_504),
    "iwildcam": _wilds("0x6313da2b204647e79a14b468131fcd64", "iwildcam", 11_957_420_032),
    "fmow": _wilds("0xaec91eb7c9d548ebb15e1b5e60f966ab", "fmow", 53_893_324_800),
}
