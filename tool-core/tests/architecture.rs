//! Rules about the sources. A module imports only from those before it, and never through the root.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

/// The modules, lowest first. `lib.rs` and `private.rs` may import from all of them; `guide` is documentation only.
const ORDER: [&str; 12] = [
    "content",
    "schema",
    "arguments",
    "model",
    "testing",
    "prompted",
    "tool",
    "toolset",
    "transcript",
    "run",
    "memory",
    "agent",
];

#[test]
fn modules_import_only_from_those_before_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 100, "the sources are not at {}", src.display());
    let mut violations = Vec::new();
    for file in files {
        let path = file.strip_prefix(&src).expect("a file of the crate");
        let Some(own) = module_of(path) else { continue };
        let text = fs::read_to_string(&file).expect("a readable file");
        let folders = path.components().count() - 1;
        let depth = folders + usize::from(!path.ends_with("mod.rs"));
        for target in imports(&text, depth) {
            let is_allowed = match ORDER.iter().position(|module| *module == target) {
                Some(position) => position <= own,
                // A name that the root re-exports.
                None => false,
            };
            if !is_allowed {
                violations.push(format!("{}: crate::{target}", path.display()));
            }
        }
    }
    assert!(violations.is_empty(), "imports against the order:\n{}", violations.join("\n"));
}

#[test]
fn finds_what_a_file_imports() {
    let text = "
        use crate::{model::Message, Tool};
        fn f() -> crate::run::Step { crate::agent::ask() }
        /// See [`crate::Agent`].
        #[cfg(test)]
        mod tests { use crate::memory::Window; }
        mod nested { #[cfg(test)] use crate::memory::Window; use super::super::{toolset::ToolSet, own}; }
        use super::super::transcript::Transcript;
        use super::sibling;
        /// Tests.
        #[cfg(test)]
        mod more { use crate::memory::Window; }
    ";
    assert_eq!(imports(text, 2), ["model", "Tool", "run", "agent", "transcript"]);
    assert_eq!(imports("mod nested { use super::super::{toolset::ToolSet, run}; }", 1), ["toolset", "run"]);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.file_name().is_some_and(|name| name != "tests.rs" && name != "testing.rs") {
            files.push(path);
        }
    }
}

/// Returns the position in the order of the module that a file belongs to.
fn module_of(path: &Path) -> Option<usize> {
    let first = path.components().next()?.as_os_str().to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    if matches!(module, "guide" | "lib" | "private") {
        return None;
    }
    let position = ORDER.iter().position(|other| *other == module);
    Some(position.unwrap_or_else(|| panic!("`{module}` has no place in the order of the modules")))
}

/// Returns the names that stand behind `crate::`, or behind enough `super::` to reach the root, in the items of a file
/// that are not only for tests. `depth` is how many modules the file is below the root.
fn imports(text: &str, depth: usize) -> Vec<String> {
    let file = syn::parse_file(text).expect("a file that compiles");
    let mut names = Vec::new();
    find(file.to_token_stream(), depth, &mut names);
    names
}

fn find(tokens: TokenStream, depth: usize, names: &mut Vec<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut position = 0;
    while position < tokens.len() {
        let rest = &tokens[position..];
        let supers = rest.chunks(3).take_while(|three| is_super(three)).count();
        match rest {
            [TokenTree::Punct(hash), TokenTree::Group(attribute), ..]
                if hash.as_char() == '#' && attribute.to_string().replace(' ', "") == "[cfg(test)]" =>
            {
                position += 2;
                position += tokens[position..].iter().take_while(|token| !ends_item(token)).count() + 1;
            }
            [TokenTree::Ident(root), TokenTree::Punct(_), TokenTree::Punct(_), name, ..]
                if root == "crate" =>
            {
                names.extend(first_names(name));
                position += 4;
            }
            _ if supers > 0 => {
                position += 3 * supers;
                if supers >= depth {
                    names.extend(first_names(&tokens[position]));
                }
            }
            [TokenTree::Ident(keyword), TokenTree::Ident(_), TokenTree::Group(body), ..]
                if keyword == "mod" =>
            {
                find(body.stream(), depth + 1, names);
                position += 3;
            }
            [TokenTree::Group(group), ..] => {
                find(group.stream(), depth, names);
                position += 1;
            }
            _ => position += 1,
        }
    }
}

fn is_super(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Punct(_)] if name == "super")
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
        _ => false,
    }
}

/// Returns the name itself, or the first name of each path in the braces of a `use`.
fn first_names(token: &TokenTree) -> Vec<String> {
    let group = match token {
        TokenTree::Ident(name) => return vec![name.to_string()],
        TokenTree::Group(group) => group.stream(),
        _ => return Vec::new(),
    };
    let mut names = Vec::new();
    let mut is_first = true;
    for token in group {
        match token {
            TokenTree::Ident(name) if is_first => {
                names.push(name.to_string());
                is_first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            _ => {}
        }
    }
    names
}

/// Two patch releases of dependents of a pinned crate cannot be part of one program. The macros are part of `tool-core`.
#[test]
fn only_the_macros_are_pinned_to_a_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pinned: Vec<String> = ["Cargo.toml", "tool-restate/Cargo.toml"]
        .iter()
        .flat_map(|manifest| {
            let text = fs::read_to_string(root.join(manifest)).unwrap();
            let lines = text.lines().filter(|line| line.contains("version = \"="));
            lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(pinned, ["tool-macros"]);
}
