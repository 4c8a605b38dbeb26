//! `file = "…"`: a text in a file of the user's crate.
//!
//! The file of a template is read by the macro, because its placeholders are checked, and named in an `include_str!`, because cargo then
//! builds the crate again after a change. Its path is relative to the manifest, because a macro may not know its source file.

use std::path::{Path, PathBuf};
use std::{env, fs};

use syn::LitStr;

use crate::diagnostics::Diagnostics;
use crate::names::FILE;

/// A text file of the crate. Whitespace at its end is not part of the text.
pub(crate) struct SourceFile {
    /// The path, relative to the folder of `Cargo.toml`.
    pub(crate) path: LitStr,
    pub(crate) text: String,
}

impl SourceFile {
    pub(super) fn read(path: LitStr, diagnostics: &mut Diagnostics) -> Option<Self> {
        let name = path.value();
        if Path::new(&name).is_absolute() {
            let message = format!(
                "`{FILE}` must be a path relative to the folder of `Cargo.toml`: `{FILE} = \"prompts/plan.md\"`"
            );
            diagnostics.error(path, message);
            return None;
        }
        let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
        match fs::read_to_string(folder.join(&name)) {
            Ok(text) if text.trim().is_empty() => {
                diagnostics.error(path, format!("the file `{name}` is blank; write the text into it"));
                None
            }
            Ok(text) => Some(Self { path, text: text.trim_end().to_owned() }),
            Err(error) => {
                let reason = error.kind();
                let message = format!(
                    "cannot read `{name}` in the folder of `Cargo.toml`: {reason}; write the path of a text file there"
                );
                diagnostics.error(path, message);
                None
            }
        }
    }
}
