//! Names of files below a root, as written in messages and in the journal.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Folder of the journal below a root. No file may be copied into it.
pub(crate) const JOURNAL_FOLDER: &str = ".fullpipe";
/// Prefix and suffix of the names of temporary files. No file may be copied to a name of this form.
pub(crate) const TEMPORARY: (&str, &str) = (".fullpipe-", ".partial");
/// Maximum length of a path in bytes (`PATH_MAX` of Linux, with the final zero).
const MOST_PATH: usize = 4095;
/// Maximum length of a component in bytes (`NAME_MAX` of Linux).
const MOST_NAME: usize = 255;

/// Name of a stream: 1 to 255 bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamName(String);

impl StreamName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for StreamName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MOST_NAME || text.chars().any(char::is_control) {
            return Err(NameError("the name of a stream must have 1 to 255 bytes and no control characters"));
        }
        Ok(Self(text))
    }
}

impl From<StreamName> for String {
    fn from(name: StreamName) -> Self {
        name.0
    }
}

/// Path of a file below a root: at least one component, none of them `.` or `..`, and not absolute.
///
/// In messages, a path is text: bytes that are not UTF-8, control characters and `%` are written as `%` and
/// two hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(PathBuf);

/// Error for a path to which no file may be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(&'static str);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NameError {}

impl RelativePath {
    /// Checks a path.
    ///
    /// # Errors
    /// Returns an error if the path is empty, absolute or too long, contains `..`, is in the folder of the
    /// journal, or ends with the name of a temporary file.
    pub fn new(path: &Path) -> Result<Self, NameError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() > MOST_PATH {
            return Err(NameError("the path is longer than 4095 bytes"));
        }
        if bytes.contains(&0) {
            return Err(NameError("the path contains a zero byte"));
        }
        let mut checked = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) if name.len() > MOST_NAME => {
                    return Err(NameError("a name in the path is longer than 255 bytes"));
                }
                Component::Normal(name) => checked.push(name),
                Component::CurDir => {}
                Component::ParentDir => return Err(NameError("the path contains '..'")),
                Component::RootDir | Component::Prefix(_) => return Err(NameError("the path is absolute")),
            }
        }
        let Some(first) = checked.components().next() else { return Err(NameError("the path is empty")) };
        if first.as_os_str() == JOURNAL_FOLDER {
            return Err(NameError("the path leads into the folder of the journal"));
        }
        let checked = Self(checked);
        let name = checked.name().as_bytes();
        if name.starts_with(TEMPORARY.0.as_bytes()) && name.ends_with(TEMPORARY.1.as_bytes()) {
            return Err(NameError("names of this form are reserved for unfinished copies"));
        }
        Ok(checked)
    }

    /// Returns the path, relative to the root.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the folder that contains the file: `.` for the root.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(&self.0)
    }

    /// Returns the name of the file in its folder.
    pub(crate) fn name(&self) -> &OsStr {
        self.0.file_name().unwrap_or_default()
    }
}

/// Returns the folder of a relative path; `.` for a path of one component.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Any path as text, with the escapes of a [`RelativePath`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathText(PathBuf);

impl PathText {
    /// Returns the path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        Self(path.into())
    }
}

impl From<PathText> for String {
    fn from(path: PathText) -> Self {
        encode(path.0.as_os_str())
    }
}

impl TryFrom<String> for PathText {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Ok(Self(decode(&text)?.into()))
    }
}

/// Content of a symbolic link: 1 to 4095 bytes, none of them zero. In messages, the content is text with the
/// escapes of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkContent(OsString);

impl LinkContent {
    /// Checks the content of a link.
    ///
    /// # Errors
    /// Returns an error if the content is empty, too long, or contains a zero byte.
    pub fn new(content: &OsStr) -> Result<Self, NameError> {
        match content.as_bytes() {
            [] => Err(NameError("the symbolic link is empty")),
            bytes if bytes.len() > MOST_PATH => Err(NameError("the symbolic link is longer than 4095 bytes")),
            bytes if bytes.contains(&0) => Err(NameError("the symbolic link contains a zero byte")),
            _ => Ok(Self(content.to_owned())),
        }
    }

    /// Returns the content, as `readlink` does.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<LinkContent> for String {
    fn from(content: LinkContent) -> Self {
        encode(&content.0)
    }
}

impl TryFrom<String> for LinkContent {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&decode(&text)?)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(self.0.as_os_str()))
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        encode(path.0.as_os_str())
    }
}

impl TryFrom<String> for RelativePath {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(Path::new(&decode(&text)?))
    }
}

fn encode(path: &OsStr) -> String {
    let mut text = String::new();
    for chunk in path.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '%' || character.is_control() {
                let mut bytes = [0; 4];
                escape(&mut text, character.encode_utf8(&mut bytes).as_bytes());
            } else {
                text.push(character);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("%{byte:02x}"));
    }
}

fn decode(text: &str) -> Result<OsString, NameError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else {
            return Err(NameError(
                "a '%' is not followed by two \
            hexadecimal digits",
            ));
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            return Err(NameError("a '%' is not followed by two hexadecimal digits"));
        };
        bytes.push((high << 4) | low);
        rest = after;
    }
    Ok(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> Result<RelativePath, NameError> {
        RelativePath::new(Path::new(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn any_name_survives_a_message() {
        for bytes in
            [&b"a"[..], b"dir/a b", b"50%", b"%41", b"new\nline", b"\xff\xfe/\x80x", "下载/é".as_bytes()]
        {
            let checked = path(bytes).expect("a path");
            let text = String::from(checked.clone());
            assert!(!text.contains(char::is_control), "{text}");
            assert_eq!(RelativePath::try_from(text), Ok(checked));
        }
        assert_eq!(String::from(path(b"a%\xff\n").expect("a path")), "a%25%ff%0a");
    }

    #[test]
    fn paths_stay_below_the_root() {
        for bytes in [&b""[..], b".", b"..", b"a/../../b", b"/etc/passwd", b".fullpipe/journal", b"a\0b"] {
            assert!(path(bytes).is_err(), "{bytes:?}");
        }
        assert!(path(&[b'a'; 256]).is_err() && path(&b"a/".repeat(2100)).is_err());
        assert_eq!(path(b"./a//b/"), path(b"a/b"));
        assert!(path(b"a/.fullpipe/b").is_ok(), "only the root has a journal");
        assert!(path(b"a/.fullpipe-0123.partial").is_err() && path(b"a/.fullpipe-0123").is_ok());
        for text in ["%2e%2e/a", "%2fetc", "a%00", "%", "%4", "%zz", "a/%2E./b"] {
            assert!(RelativePath::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_in_the_root_has_the_root_as_folder() {
        let file = path(b"a").expect("a path");
        assert_eq!((file.folder(), file.name()), (Path::new("."), OsStr::new("a")));
        assert_eq!(path(b"a/b/c").expect("a path").folder(), Path::new("a/b"));
    }
}
