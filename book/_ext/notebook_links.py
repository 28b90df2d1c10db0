"""Link a chapter's notebook below its title: to download, and where it opens in the browser.

The addresses are those of ``_config.yml``. Where there is none, there is no link either.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

BINDER_PROVIDERS = {"github.com": "gh", "gitlab.com": "gl"}


def places(
    notebook: str,
    *,
    repository: str,
    branch: str = "main",
    binder: str = "",
    colab: str = "",
    jupyterhub: str = "",
) -> dict[str, str]:
    """Return where `notebook`, a path in the repository, can be opened: address by name of place.

    All others are addresses; what is empty is not there.
    """
    repository = repository.strip().rstrip("/").removesuffix(".git")
    host, path = urlsplit(repository).netloc, urlsplit(repository).path.strip("/")
    found = {}
    if not repository:
        return found
    if binder:
        provider = BINDER_PROVIDERS.get(host, "git")
        source = {"gh": path, "gl": quote(path, safe="")}.get(provider, quote(repository, safe=""))
        opens = urlencode({"urlpath": f"lab/tree/{notebook}"})
        address = f"{binder.rstrip('/')}/v2/{provider}/{source}/{quote(branch, safe='')}"
        found["Binder"] = f"{address}?{opens}"
    if colab and host == "github.com":
        found["Colab"] = f"{colab.rstrip('/')}/github/{path}/blob/{branch}/{notebook}"
    if jupyterhub:
        # nbgitpuller clones into a folder that is called as the repository is.
        folder = path.rsplit("/", 1)[-1]
        pull = {"repo": repository, "branch": branch, "urlpath": f"lab/tree/{folder}/{notebook}"}
        address = f"{jupyterhub.rstrip('/')}/hub/user-redirect/git-pull"
        found["JupyterHub"] = f"{address}?{urlencode(pull)}"
    return found


class NotebookLinks(SphinxPostTransform):
    default_priority = 7  # after the line of the reading time is there (6)
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        lines = (p for p in self.document.findall(nodes.paragraph) if is_reading_time(p))
        files = self.document.findall(addnodes.download_reference)
        line = next(lines, None)
        file = next((file for file in files if file["reftarget"].endswith(".ipynb")), None)
        if line is None or file is None:
            return
        notebook = f"notebooks/{file['reftarget'].split('notebooks/')[-1]}"
        download = file.deepcopy()
        download.children = [nodes.Text("notebook")]
        line += [nodes.Text(" · Exercises: "), download]
        for name, address in places(notebook, **self.config.notebook_places).items():
            line += [nodes.Text(", "), nodes.reference("", name, refuri=address, internal=False)]


def is_reading_time(paragraph: nodes.paragraph) -> bool:
    return "reading-time" in paragraph["classes"]


def tell_pages(app: Sphinx, config: Config) -> None:
    """Let a page speak of these places, within ``{only} launch``, and say how Colab gets ready."""
    repository = config.notebook_places["repository"]
    if repository:
        app.tags.add("launch")
    install = f"`%pip install -q git+{repository}`"
    config.myst_substitutions = {**config.myst_substitutions, "install": install}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("notebook_places", {"repository": ""}, "env")
    app.connect("config-inited", tell_pages, priority=400)  # MyST reads its settings at 500
    app.add_post_transform(NotebookLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
