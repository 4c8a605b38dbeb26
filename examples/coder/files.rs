//! The files of a project: a directory that no path leads out of, whatever links and `..` it has.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use tool_core::{ToolError, tool};

/// Folders that are not listed or searched.
const HIDDEN: [&str; 3] = [".git", "target", "node_modules"];

/// The largest file that is read, in bytes, and the most lines that a search finds.
const MAX_BYTES: u64 = 4 << 20;
const MAX_LINES: usize = 200;

/// A directory that was opened once: each path is resolved below it by the operating system.
pub(crate) struct Project {
    directory: Dir,
    root: PathBuf,
}

impl Project {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        Ok(Self { directory: Dir::open_ambient_dir(&root, ambient_authority())?, root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn text(&self, path: &str) -> Result<String, ToolError> {
        let file = self.directory.open(path).map_err(|error| failed(path, &error))?;
        let metadata = file.metadata().map_err(|error| failed(path, &error))?;
        // A pipe or a device would never end.
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err(ToolError::failed(format!("`{path}` is no file of at most {MAX_BYTES} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
        String::from_utf8(bytes).map_err(|_| ToolError::failed(format!("`{path}` is no text")))
    }

    /// Calls a function with the paths of the entries of a folder, and whether they are folders. Links are left out.
    fn each(&self, folder: &str, visit: &mut dyn FnMut(&str, bool)) -> Result<(), ToolError> {
        let entries = self.directory.read_dir(folder).map_err(|error| failed(folder, &error))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let (name, kind) = (entry.file_name().to_string_lossy().into_owned(), entry.file_type());
            if let Ok(kind) = kind
                && (kind.is_dir() || kind.is_file())
                && !HIDDEN.contains(&&*name)
            {
                let path =
                    if folder == "." { name } else { format!("{}/{name}", folder.trim_end_matches('/')) };
                found.push((path, kind.is_dir()));
            }
        }
        found.sort();
        found.iter().for_each(|(path, is_folder)| visit(path, *is_folder));
        Ok(())
    }
}

fn failed(path: &str, error: &io::Error) -> ToolError {
    ToolError::failed(format!("`{path}` cannot be opened in the project: {error}"))
}

/// Lists the files and folders of a folder of the project.
#[tool(blocking, pure)]
pub(crate) fn list(
    #[param("the folder; `.` is the project", required = false)] folder: Option<String>,
    #[inject] project: &Project,
) -> Result<String, ToolError> {
    let mut lines = Vec::new();
    project.each(folder.as_deref().unwrap_or("."), &mut |path, is_folder| {
        lines.push(if is_folder { format!("{path}/") } else { path.to_owned() });
    })?;
    Ok(if lines.is_empty() { "the folder is empty".to_owned() } else { lines.join("\n") })
}

/// Returns the text of a file.
#[tool(blocking)]
pub(crate) fn read(path: String, #[inject] project: &Project) -> Result<String, ToolError> {
    project.text(&path)
}

/// Finds the lines with a text in all files of the project.
#[tool(blocking)]
pub(crate) fn search(text: String, #[inject] project: &Project) -> Result<String, ToolError> {
    let (mut folders, mut lines) = (vec![".".to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        project.each(&folder, &mut |path, is_folder| match is_folder {
            true => folders.push(path.to_owned()),
            false => {
                let content = project.text(path).unwrap_or_default();
                let found = content.lines().enumerate().filter(|(_, line)| line.contains(&text));
                lines.extend(found.map(|(number, line)| format!("{path}:{}: {line}", number + 1)));
            }
        })?;
        if lines.len() > MAX_LINES {
            lines.truncate(MAX_LINES);
            lines.push("there is more; search for a longer text".to_owned());
            break;
        }
    }
    Ok(if lines.is_empty() { "nothing was found".to_owned() } else { lines.join("\n") })
}

/// Replaces a text that occurs once in a file, or writes a new file.
#[tool(blocking, needs_approval, at_most_once)]
pub(crate) fn edit(
    path: String,
    #[param("the text that is replaced; empty for a new file")] old: String,
    new: String,
    #[inject] project: &Project,
) -> Result<String, ToolError> {
    let text = match old.is_empty() {
        true if project.directory.symlink_metadata(&path).is_ok() => {
            return Err(ToolError::failed(format!("`{path}` exists; name the text that is replaced")));
        }
        true => new,
        false => {
            let text = project.text(&path)?;
            match text.matches(&old).count() {
                1 => text.replacen(&old, &new, 1),
                times => return Err(ToolError::failed(format!("the text occurs {times} times in `{path}`"))),
            }
        }
    };
    // A process that dies leaves the file as it was, or as it is to be.
    let beside = format!("{path}.coder~");
    let written = project.directory.write(&beside, text).and_then(|()| {
        if let Ok(metadata) = project.directory.metadata(&path) {
            project.directory.set_permissions(&beside, metadata.permissions())?;
        }
        project.directory.rename(&beside, &project.directory, &path)
    });
    written.map_err(|error| failed(&path, &error))?;
    Ok(format!("`{path}` is written"))
}
