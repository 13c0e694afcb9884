"""Remote storage: what fsspec can reach, under names without secrets.

A URL may contain a user, a password or a signature. It is used to open files and for nothing else:
people, reports and traces see :func:`redacted`, and the secrets are removed from messages of file
systems before they are passed on. fsspec and what it needs for a protocol are extras, imported
when the first URL is opened. Other credentials come from where those packages look for them
(environment, configuration files).
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

from traceconv.core.errors import MissingExtraError, SourceError, TraceconvError, extra_line
from traceconv.core.patterns import lazy_regex

BLOCK_BYTES = 64 << 10
"""The least that is requested, and the unit of the cache."""

S3 = ("s3", "s3a")
"""Names of S3 at fsspec."""

AHEAD_BLOCKS = 128
"""Most blocks requested at once, of a file that is read from front to back."""

PAGE_BYTES = 64 << 20
"""Most bytes of a page that lists a folder."""

CACHE_BYTES = 32 << 20
"""Size of the cache, for all files of a storage together."""

_URL = lazy_regex(r"[A-Za-z][A-Za-z0-9+.\-]*(?:::[A-Za-z0-9+.\-]+)*://")
_LOGIN = lazy_regex(r"(?<=://)[^/\s@'\"]*@")
_VALUE = lazy_regex(r"([?&;])([\w.\-~%]+)=[^&#;\s'\")>]*")
_WEB_QUERY = lazy_regex(r"(https?://[^\s?'\"]*)\?[^=&\s'\"]+(?=[\s'\"]|$)")
_PACKAGES = lazy_regex(r"\"([\w.-]+)\"|install (?:the )?([\w-]+)", re.IGNORECASE)
_RANGE = lazy_regex(r"bytes=(\d{1,19})-(\d{1,19})")
_LEAST_SECRET = 3

_FOREIGN = {
    "aiohttp": ("ClientError",),
    "azure.core.exceptions": ("AzureError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "paramiko": ("SSHException",),
    "requests": ("RequestException",),
}
"""Exceptions of the packages behind fsspec, besides OSError."""


def is_url(path: str) -> bool:
    """Whether ``path`` names something fsspec opens (``s3://...``), not a path on this machine."""
    return _URL.match(path) is not None


def redacted(url: str) -> str:
    """``url`` for people: without user and password, and without the values of its query."""
    scheme, mark, location = url.partition("://")
    login, separator, host_and_path = location.rpartition("@")
    if separator and (":" in login or "/" not in login):  # a password may contain slashes
        url = f"{scheme}{mark}***@{host_and_path}"
    return _without_values(url)


def _without_values(text: str) -> str:
    text = _VALUE.sub(r"\1\2=***", text)
    return _WEB_QUERY.sub(r"\1?***", text)


def _secrets(url: str) -> list[str]:
    """The parts of ``url`` that no message may contain, the longest first."""
    login = url.partition("://")[2].rpartition("@")[0]
    secrets = [login, login.partition(":")[2], *re.findall(r"[?&;][^=&#;]+=([^&#;]*)", url)]
    variants = {text for secret in secrets for text in (secret, unquote(secret))}
    return sorted((s for s in variants if len(s) >= _LEAST_SECRET), key=len, reverse=True)


_logins: dict[str, str] = {}
"""Hosts of outputs: redacted, and with the login as it was given."""


def redact_url(url: str) -> str:
    """The redacted form of an output's URL, which :func:`original_url` undoes in this process.

    Paths on this machine stay as they are.
    """
    if not is_url(url):
        return url
    label, parts = redacted(url), url.partition("://")
    login, separator, host_and_path = parts[2].rpartition("@")
    if separator and label != url:
        host = host_and_path.partition("/")[0]
        _logins[f"{parts[0]}://***@{host}"] = f"{parts[0]}://{login}@{host}"
    return label


def original_url(label: str) -> str:
    """The URL that :func:`redact_url` made ``label`` of, or of a part of it, which has a number."""
    scheme, mark, host_and_path = label.partition("://")
    host, slash, path = host_and_path.partition("/")
    return _logins.get(f"{scheme}{mark}{host}", f"{scheme}{mark}{host}") + slash + path


class Storage:
    """A file system of fsspec, as one URL names it.

    Attributes:
        url:   as given; never to be shown.
        label: the same for people.
        fs:    the file system of fsspec.
        path:  what the URL names on it.
        blocks: the cache of files read lately.
    """

    def __init__(self, url: str, error: type[TraceconvError] = SourceError) -> None:
        """
        Args:
            error: raised where it cannot be reached.

        Raises:
            MissingExtraError: fsspec, or what it needs for this protocol, is not installed.
            TraceconvError: of the type ``error``: the URL makes no sense.
        """
        self.url, self.label = url, redacted(url)
        try:
            import fsspec.core  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtraError(
                f"{self.label}: needs a package: {_install_line(url)}"
            ) from None
        with self.guarded(self.label, error):
            scheme = url.partition("://")[0]
            try:
                if url.endswith("://") and scheme != "memory":
                    raise TypeError  # before a file system fails with a host that is empty
                if scheme in ("http", "https"):  # url_to_fs would split the address [::1]
                    kind = fsspec.core.get_filesystem_class(scheme)  # names missing packages
                    self.fs, self.path = kind(client_kwargs=_client_settings(scheme)), url
                else:
                    self.fs, self.path = fsspec.core.url_to_fs(url)
            except (TypeError, AttributeError):  # a file system that is made of more than a URL
                raise error(
                    f"{self.label}: the address is not complete, or {scheme}:// needs more than "
                    "an address; name the files where they are stored, such as s3://bucket/folder"
                ) from None
            self.fs.invalidate_cache()
        self.blocks = Blocks(self._fetch)
        self._files: dict[str, Any] = {}

    @property
    def shared(self) -> bool:
        """Whether other processes see the same files."""
        return self.protocol != "memory"

    @property
    def web(self) -> bool:
        """Whether it is a web server, whose folders are pages of links."""
        return self.protocol in ("http", "https")

    @property
    def protocol(self) -> str:
        """Its name at fsspec."""
        names = self.fs.protocol
        return str(names if isinstance(names, str) else names[0])

    @contextmanager
    def guarded(self, title: str, error: type[TraceconvError] = SourceError) -> Iterator[None]:
        """Around what may fail for reasons of the storage.

        Raises:
            MissingExtraError: a package of the storage is not installed.
            TraceconvError: of the type ``error``, free of secrets, with advice.
        """
        try:
            yield
        except ImportError as e:
            raise MissingExtraError(
                f"{title}: {self._cleared(str(e))}: {_install_line(self.url, str(e))}"
            ) from None
        except _failures() as e:
            # not "from e": the message of the storage may contain the URL with its secrets
            raise error(f"{title}: {self._reason(e)}") from None

    def _reason(self, e: BaseException) -> str:
        if isinstance(e, FileNotFoundError):
            cause = e.__cause__
            if cause is None or getattr(cause, "status", None) == 404:
                return "no such file or folder"
            e = cause  # a web server has answered something else, or nothing
        if "Timeout" in type(e).__name__:
            return "the server does not answer in time"
        if type(e).__name__ == "FileExpired":
            return "it was changed while it was being read; start again"
        text = self._cleared(str(e) or type(e).__name__)
        if isinstance(e, PermissionError) or "redential" in text:
            return (
                f"access denied ({text}); credentials are looked for where the storage's own "
                "package does (for S3: AWS_ACCESS_KEY_ID ..., AWS_PROFILE, AWS_ENDPOINT_URL)"
            )
        return f"the storage reports: {text}"

    def _cleared(self, text: str) -> str:
        for secret in _secrets(self.url):
            text = text.replace(secret, "***")
        return _without_values(_LOGIN.sub("***@", text))

    def fetch_heads(self, sizes: Mapping[str, int]) -> None:
        """Load the first blocks of files at once; what fails is requested again when it is read.

        Args:
            sizes: bytes of each file.
        """
        ends = [min(size, BLOCK_BYTES) for size in sizes.values()]
        with self.guarded(self.label):
            heads = self.fs.cat_ranges(list(sizes), [0] * len(ends), ends, on_error="return")
        for path, end, data in zip(sizes, ends, heads, strict=True):
            if isinstance(data, bytes) and len(data) == end:
                self.blocks.put(path, 0, data)

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        title = redacted(self.fs.unstrip_protocol(path))
        with self.guarded(title):
            data = self._range(path, start, end)
        if len(data) != end - start:
            raise SourceError(
                f"{title}: {len(data)} bytes came instead of {end - start}; it was changed while "
                "it was being read, or the server does not support ranges: download it, and name "
                "the copy"
            )
        return data

    def _range(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file; on S3 of the version that it had (its ETag) when it was first read."""
        if self.protocol not in S3:
            data: bytes = self.fs.cat_file(path, start=start, end=end)
            return data
        if path not in self._files:
            self._files[path] = self.fs.open(path, "rb", cache_type="none")
        file = self._files[path]
        file.seek(start)
        content: bytes = file.read(end - start)
        return content


def _client_settings(scheme: str) -> dict[str, Any]:
    """Those of the user for a web client, with a limit on answers and on the time without one."""
    aiohttp: Any = importlib.import_module("aiohttp")
    settings: Any = importlib.import_module("fsspec.config").conf
    return {
        "timeout": aiohttp.ClientTimeout(total=300, sock_connect=30, sock_read=60),
        **settings.get(scheme, {}).get("client_kwargs", {}),
        "response_class": type("Answer", (aiohttp.ClientResponse,), {"read": _read}),
    }


async def _read(answer: Any) -> bytes:
    """The content of an answer of a web server, which may send without end, or what unpacks to far
    more than was requested. Of a range that is too long, one byte more than it has."""
    ranged = _RANGE.fullmatch(answer.request_info.headers.get("Range", ""))
    most = int(ranged[2]) - int(ranged[1]) + 1 if ranged else PAGE_BYTES
    content = bytearray(answer._body or b"")
    while answer._body is None and len(content) <= most and not answer.content.at_eof():
        content += await answer.content.readany()
    if len(content) > most:
        answer.close()
        if not ranged:
            raise ValueError(f"the page has more than {most >> 20} MiB")
    answer._body = bytes(content[: most + 1])  # where its other methods look
    return cast(bytes, answer._body)


def _install_line(url: str, reason: str = "") -> str:
    """What installs fsspec or the package it needs for a URL, which it names in ``reason``."""
    if url.partition("://")[0] in ("s3", "s3a"):
        return extra_line("s3")
    packages = [package or alternative for package, alternative in _PACKAGES.findall(reason)]
    return f"pip install {' '.join(packages)}" if packages else extra_line("remote")


@lru_cache(maxsize=4)
def cached_storage(url: str) -> Storage:
    """The storage of a URL, made once per process: workers open it for every rank."""
    return Storage(url)


def _failures() -> tuple[type[BaseException], ...]:
    """What file systems raise; those of packages count once they are loaded."""
    builtin = (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        RuntimeError,
        NotImplementedError,
        TypeError,
        AttributeError,
        AssertionError,
    )
    loaded = [
        getattr(sys.modules[module], name, OSError)
        for module, names in _FOREIGN.items()
        if module in sys.modules
        for name in names
    ]
    return (*builtin, *loaded)


class Blocks:
    """The blocks of files used last, within :data:`CACHE_BYTES`."""

    def __init__(self, fetch: Callable[[str, int, int], bytes]) -> None:
        """
        Args:
            fetch: the bytes of a file from a start to an end.
        """
        self._fetch = fetch
        self._cached: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, path: str, number: int) -> bytes | None:
        """A block from the cache, else None."""
        block = self._cached.get((path, number))
        if block is not None:
            self._cached.move_to_end((path, number))
        return block

    def load(self, path: str, number: int, count: int, size: int) -> bytes:
        """Block ``number`` of a file of ``size`` bytes; the ``count`` from it on are then cached.

        Raises:
            SourceError: they cannot be had.
        """
        begin = number * BLOCK_BYTES
        data = self._fetch(path, begin, min(begin + count * BLOCK_BYTES, size))
        for i in range(0, len(data), BLOCK_BYTES):
            self.put(path, number + i // BLOCK_BYTES, data[i : i + BLOCK_BYTES])
        return data[:BLOCK_BYTES]

    def put(self, path: str, number: int, block: bytes) -> None:
        """Cache a block; if there are too many, the one not used for longest is removed."""
        self._cached[path, number] = block
        while len(self._cached) > CACHE_BYTES // BLOCK_BYTES:
            self._cached.popitem(last=False)
