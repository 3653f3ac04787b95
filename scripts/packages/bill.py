"""The bill of materials (CycloneDX), and the licences of what is linked into the program."""

import json
import re
import time

from packages.project import ROOT

PLOTLY = ROOT / "crates/fullpipe-analysis/assets/plotly"  # the chart library inside the HTML reports


def plotly_version():
    return re.search(r"plotly\.js-basic-dist-min\)\s+(\d+\.\d+\.\d+)", (PLOTLY / "ORIGIN.md").read_text()).group(1)


def bill(project):
    """Returns the bill of materials as CycloneDX JSON."""
    command, *crates = project.crates

    def component(crate):
        entry = {
            "type": "library",
            "bom-ref": crate.key,
            "name": crate.name,
            "version": crate.version,
            "licenses": [{"expression": crate.license}],
            "purl": f"pkg:cargo/{crate.key}",
        }
        if crate.checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
        return entry

    version = plotly_version()
    name = "plotly.js-basic-dist-min"
    charts = {
        "type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version,
        "licenses": [{"expression": "MIT"}], "purl": f"pkg:npm/{name}@{version}",
    }
    dependencies = {crate.key: list(crate.dependencies) for crate in project.crates}
    dependencies[f"fullpipe-analysis@{project.version}"].append(charts["bom-ref"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(project.epoch)),
            "component": component(command) | {"type": "application", "name": "fullpipe"},
            "properties": [
                {"name": "fullpipe:commit", "value": project.commit},
                {"name": "fullpipe:target", "value": project.target},
            ],
        },
        "components": [*map(component, crates), charts],
        "dependencies": [{"ref": ref, "dependsOn": refs} for ref, refs in sorted(dependencies.items())],
    }
    return json.dumps(document, indent=1) + "\n"


def notices(project):
    """Returns the licence texts of other people's work in the program, each text once."""
    texts, without = {}, []
    for crate in project.crates:
        if crate.checksum is None:
            continue
        found = licence_files(crate)
        if not found:
            without.append(f"{crate.name} {crate.version}: {crate.license}")
        for file in found:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
            texts.setdefault(text, []).append(f"{crate.name} {crate.version}")
    charts = (PLOTLY / "LICENSE").read_text(encoding="utf-8").strip()
    texts.setdefault(charts, []).append(f"plotly.js {plotly_version()}")
    parts = ["fullpipe contains the following packages. Of several licences, the first text below applies."]
    parts += [f"{', '.join(names)}\n\n{text}" for text, names in texts.items()]
    if without:
        parts.append("Packages without a licence text:\n\n" + "\n".join(without))
    rule = "\n\n" + "-" * 78 + "\n\n"
    return rule.join(parts) + "\n"


def licence_files(crate):
    """Returns the files with licences: if MIT is one of several, only those of MIT, and notices."""
    pattern = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
    files = sorted(file for file in crate.folder.iterdir() if file.is_file() and pattern.match(file.name))
    mit = [file for file in files if "MIT" in file.name.upper() or file.name.upper().startswith("NOTICE")]
    return mit if "MIT" in crate.license.split() and any("MIT" in file.name.upper() for file in mit) else files
