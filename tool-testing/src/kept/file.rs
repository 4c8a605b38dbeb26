//! The files of kept runs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};
use tool_core::run::Run;

use crate::error::{Error, Result, failure};

/// The format of the files.
const FORMAT: u64 = 1;

fn io_failure(doing: &str, path: &Path, error: &io::Error) -> Error {
    failure(format!("cannot {doing} `{}`: {error}", path.display()))
}

/// Returns the files of a directory, sorted.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| io_failure("read the directory", directory, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new("json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a run.
pub(super) fn read(file: &Path) -> Result<Run> {
    let text = fs::read_to_string(file).map_err(|error| io_failure("read", file, &error))?;
    let unreadable =
        |why: &str| failure(format!("`{}` is no kept run of this version: {why}", file.display()));
    let mut content: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error.to_string()))?;
    if content["format"] != FORMAT {
        return Err(unreadable(&format!("its format is {}, expected {FORMAT}", content["format"])));
    }
    serde_json::from_value(content["run"].take()).map_err(|error| unreadable(&error.to_string()))
}

/// Writes a run, whose JSON this is. The same run has the same bytes each time.
pub(super) fn write(directory: &Path, id: &str, run: &Value) -> Result<PathBuf> {
    let file = directory.join(format!("{}.json", file_name(id)));
    let content = json!({ "format": FORMAT, "run": run });
    let text = serde_json::to_string_pretty(&content).map_err(|error| failure(error.to_string()))?;
    fs::write(&file, text + "\n").map_err(|error| io_failure("write", &file, &error))?;
    Ok(file)
}

/// Returns the name of the file of a run, whose id can be any text.
fn file_name(id: &str) -> String {
    let mut name = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            // Also capitals, which some file systems do not tell from small letters.
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

/// Creates a directory.
pub(super) fn create(directory: &Path) -> Result {
    fs::create_dir_all(directory).map_err(|error| io_failure("create", directory, &error))
}
