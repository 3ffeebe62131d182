"""Write what travels with wheels for the code of others that is linked into them; `--check` compares instead.

`THIRD-PARTY-LICENSES.txt` has the licence of each crate that is linked into the native module, of libwebp, which a
crate brings as C sources, and of Rust's standard library. Crates that only run while the module is built are left out.
`native/components.cdx.json` lists the same in CycloneDX, with checksums, and is in each wheel, too. (The list that
maturin makes has no libwebp, and other bytes in another folder.) Both follow Cargo.lock: `make release` checks them,
and so does `tests/test_release.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENSES, COMPONENTS = ROOT / "THIRD-PARTY-LICENSES.txt", ROOT / "native" / "components.cdx.json"
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-musl")
RULE = "=" * 100
MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
INTRODUCTION = """\
The native module of penstock's wheels contains the code of others that is listed here, each under its own
licence. Where there is a choice between MIT and Apache-2.0, it is used under MIT.
"""
STANDARD_LIBRARY = f"""\
Copyright (c) The Rust Project Contributors

It contains hashbrown, addr2line, gimli, object, miniz_oxide, adler2, memchr and rustc-demangle under the same terms.

{MIT}"""


class ThirdPartyError(Exception):
    """What is missing, in one sentence."""


def main() -> int:
    """Write both files, or compare them; 1 and a sentence if they differ or cannot be made."""
    parser = argparse.ArgumentParser(description="Licences and components of the code that is linked into wheels.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    try:
        crates = find_linked_crates()
        contents = {LICENSES: describe_licenses(crates), COMPONENTS: describe_components(crates)}
    except ThirdPartyError as error:
        print(f"third_party: {error}", file=sys.stderr)
        return 1
    differing = [path for path, text in contents.items() if not path.exists() or path.read_text() != text]
    for path in differing:
        if check:
            name = path.relative_to(ROOT)
            print(f"third_party: {name} does not fit Cargo.lock: run scripts/third_party.py", file=sys.stderr)
        else:
            path.write_text(contents[path])
    return int(check and bool(differing))


def find_linked_crates() -> list[dict[str, object]]:
    """Crates of others that are linked into the module of some wheel, as `cargo metadata` describes them."""
    linked: dict[str, dict[str, object]] = {}
    for target in TARGETS:
        metadata = read_metadata(target)
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        waiting = [key for key, package in packages.items() if package["name"] == "penstock-python"]
        seen = set(waiting)
        while waiting:
            node = nodes[waiting.pop()]
            used = [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
            new = [key for key in used if key not in seen and not is_macro(packages[key])]
            seen.update(new)
            waiting += new
        linked |= {key: packages[key] for key in seen if packages[key]["source"] is not None}
    return sorted(linked.values(), key=lambda package: str(package["name"]))


def read_metadata(target: str) -> dict[str, list]:
    """What cargo knows of the workspace and of the crates that it resolves to for a target."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ThirdPartyError(f"cargo metadata failed: {' '.join(done.stderr.split())}")
    return json.loads(done.stdout)


def is_macro(package: dict) -> bool:
    """Whether a crate runs in the compiler; what it needs is not linked either."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def describe_licenses(crates: list[dict]) -> str:
    """The text of THIRD-PARTY-LICENSES.txt."""
    parts = [INTRODUCTION]
    for crate in crates:
        title = f"{crate['name']} {crate['version']} ({crate['license']})\n{crate['repository']}"
        parts.append(f"{title}\n\n{read_license(crate)}")
        if crate["name"] == "libwebp-sys":
            vendor = Path(crate["manifest_path"]).parent / "vendor"
            texts = "\n".join((vendor / name).read_text() for name in ("COPYING", "PATENTS"))
            parts.append(f"libwebp {find_libwebp(crate)} (BSD-3-Clause)\nin libwebp-sys\n\n{texts}")
    parts.append(f"Rust's standard library (MIT OR Apache-2.0)\n\n{STANDARD_LIBRARY}")
    lines = f"\n{RULE}\n\n".join(part.rstrip() + "\n" for part in parts).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def read_license(crate: dict) -> str:
    """The licence's text as the crate has it, MIT's before others; else MIT's with the crate's authors."""
    folder = Path(crate["manifest_path"]).parent
    for name in ("LICENSE-MIT", "LICENSE-MIT.txt", "LICENSE", "LICENSE.md", "LICENSE.txt"):
        if (folder / name).exists():
            return (folder / name).read_text(encoding="utf-8")
    if "MIT" in re.split(r"[^\w.-]+", str(crate["license"])) and crate["authors"]:
        return f"Copyright (c) {', '.join(crate['authors'])}\n\n{MIT}"
    raise ThirdPartyError(f"{crate['name']} {crate['version']} has no licence file: add its text to third_party.py")


def describe_components(crates: list[dict]) -> str:
    """The text of native/components.cdx.json."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    checksums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    components = []
    for crate in crates:
        name, number = crate["name"], crate["version"]
        component = describe_component(name, number, crate["license"], f"pkg:cargo/{name}@{number}")
        component["hashes"] = [{"alg": "SHA-256", "content": checksums[name, number]}]
        components.append(component)
        if name == "libwebp-sys":
            number = find_libwebp(crate)
            components.append(describe_component("libwebp", number, "BSD-3-Clause", f"pkg:generic/libwebp@{number}"))
    listed = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": describe_component("penstock-data", version, "Apache-2.0", f"pkg:pypi/penstock-data@{version}")
        },
        "components": components,
    }
    return json.dumps(listed, indent=2) + "\n"


def describe_component(name: str, version: str, license_: str, purl: str) -> dict[str, object]:
    """A component as CycloneDX lists it."""
    parts = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**parts, "licenses": [{"expression": license_.replace("/", " OR ")}]}


def find_libwebp(crate: dict) -> str:
    """The version of libwebp in the crate, as its decoder states it."""
    header = Path(crate["manifest_path"]).parent / "vendor" / "src" / "dec" / "vp8i_dec.h"
    found = re.findall(r"#define DEC_(?:MAJ|MIN|REV)_VERSION (\d+)", header.read_text())
    if len(found) != 3:
        raise ThirdPartyError(f"{header} does not state libwebp's version")
    return ".".join(found)


if __name__ == "__main__":
    sys.exit(main())
