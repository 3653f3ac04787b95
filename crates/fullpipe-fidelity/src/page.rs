//! Writes generated tables into Markdown pages whose other text is written by hand.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use fullpipe::Error;
use fullpipe::files::write_atomically;

/// Returns the markers before and after the generated table `name`; the rest of the page is left unchanged.
fn markers(name: &str) -> [String; 2] {
    ["begin", "end"].map(|edge| format!("<!-- {edge} of the {name} -->\n"))
}

/// Checks that `page` contains the markers of the table `name`, or does not exist yet. This is checked first,
/// because a campaign takes hours and its last step must not fail.
pub(crate) fn check(page: &Path, name: &str) -> Result<(), Error> {
    match fs::read_to_string(page) {
        Ok(old) => parts(page, name, &old).map(|_| ()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(Error::new(format!("cannot read {}: {error}", page.display()), "choose another --page"))
        }
    }
}

/// Returns the parts of the page `old` before and after the table `name`, without its markers.
fn parts<'o>(page: &Path, name: &str, old: &'o str) -> Result<(&'o str, &'o str), Error> {
    let [begin, end] = markers(name);
    let parts = old.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    parts.ok_or_else(|| {
        Error::new(
            format!("{} has no marker for the {name}", page.display()),
            "use a new file, or a page that this command wrote",
        )
    })
}

/// Writes `table` between the markers for the table `name` in the file `page`, or creates the file.
pub(crate) fn write(page: &Path, title: &str, name: &str, table: &str) -> Result<(), Error> {
    let [begin, end] = markers(name);
    let old = fs::read_to_string(page).unwrap_or_else(|_| format!("# {title}\n\n{begin}{end}"));
    let (before, after) = parts(page, name, &old)?;
    let file = page.file_name().and_then(|name| name.to_str()).unwrap_or("fidelity.md");
    let dir = page.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    write_atomically(dir, file, format!("{before}{begin}{table}{end}{after}"))
}
