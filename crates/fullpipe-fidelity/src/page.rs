//! Markdown pages in which the tables are generated, and the rest is written by hand.

use std::fs;
use std::path::Path;

use fullpipe::Error;
use fullpipe::files::write_atomically;

/// Returns the markers before and after the generated table `name`; the rest of the page is left unchanged.
fn markers(name: &str) -> [String; 2] {
    ["begin", "end"].map(|edge| format!("<!-- {edge} of the {name} -->\n"))
}

/// Writes `table` between the markers for the table `name` in the file `page`, or creates the file.
pub(crate) fn write(page: &Path, title: &str, name: &str, table: &str) -> Result<(), Error> {
    let [begin, end] = markers(name);
    let old = fs::read_to_string(page).unwrap_or_else(|_| format!("# {title}\n\n{begin}{end}"));
    let parts = old.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        return Err(Error::new(
            format!("{} has no marker for the {name}", page.display()),
            "use a new file, or a page that this command wrote",
        ));
    };
    let file = page.file_name().and_then(|name| name.to_str()).unwrap_or("fidelity.md");
    let dir = page.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    write_atomically(dir, file, format!("{before}{begin}{table}{end}{after}"))
}
