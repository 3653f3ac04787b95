//! A page in Markdown of which one part is made, and the rest is written by hand.

use std::fs;
use std::path::Path;

use fullpipe::Error;
use fullpipe::files::write_atomically;

/// What stands between these is made anew; the rest of the page stays.
const MARKS: [&str; 2] = ["<!-- begin of the table -->\n", "<!-- end of the table -->\n"];

/// Puts `table` between the marks of `page`, or makes a page of it.
pub(crate) fn write(page: &Path, title: &str, table: &str) -> Result<(), Error> {
    let [begin, end] = MARKS;
    let old = fs::read_to_string(page).unwrap_or_else(|_| format!("# {title}\n\n{begin}{end}"));
    let parts = old.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let Some((before, after)) = parts else {
        return Err(Error::new(
            format!("{} has no marker for the table", page.display()),
            "use a new file, or a page that this command wrote",
        ));
    };
    let name = page.file_name().and_then(|name| name.to_str()).unwrap_or("FIDELITY.md");
    let dir = page.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    write_atomically(dir, name, format!("{before}{begin}{table}{end}{after}"))
}
