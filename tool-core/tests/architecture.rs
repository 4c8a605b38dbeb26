//! Rules about the sources: imports point one way, and which versions are pinned.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Item;

/// Folders whose files still import each other.
const UNORDERED: [&str; 8] = [
    "tool-core/src/arguments",
    "tool-core/src/model",
    "tool-core/src/prompted",
    "tool-core/src/tool",
    "tool-core/src/transcript",
    "tool-core/src/run",
    "tool-core/src/memory",
    "tool-core/src/agent",
];

/// `lib.rs` and each `mod.rs` list their files lowest first.
#[test]
fn a_file_imports_only_from_those_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut violations = Vec::new();
    for sources in ["tool-core/src", "tool-macros/src"] {
        assert!(root.join(sources).join("lib.rs").is_file(), "the sources are not at {sources}");
        check(&root, Path::new(sources), &[], &mut violations);
    }
    assert!(violations.is_empty(), "imports against the order:\n{}", violations.join("\n"));
}

/// Checks the files of a folder, which is this module of its crate, and those of the folders in it.
fn check(root: &Path, folder: &Path, module: &[String], violations: &mut Vec<String>) {
    let index = if module.is_empty() { "lib.rs" } else { "mod.rs" };
    let Ok(text) = fs::read_to_string(root.join(folder).join(index)) else { return };
    let modules = modules(&text);
    let position = |name: &String| modules.iter().position(|module| module == name);
    // Nothing inside a crate is imported through its root.
    let mut exports = HashMap::new();
    for path in paths(&text, module).iter().filter(|_| !module.is_empty()) {
        if let Some([file, .., name]) = path.strip_prefix(module) {
            exports.insert(name.clone(), position(file));
        }
    }
    let is_ordered = !UNORDERED.iter().any(|unordered| folder.starts_with(unordered));
    for (own, name) in modules.iter().enumerate() {
        let inner = folder.join(name);
        let module: Vec<_> = module.iter().chain([name]).cloned().collect();
        for file in files(root, &inner).into_iter().filter(|_| is_ordered) {
            let text = fs::read_to_string(root.join(&file)).expect("a readable file");
            for path in paths(&text, &module_of(&file, &inner, &module)) {
                let Some([target, ..]) = path.strip_prefix(&module[..module.len() - 1]) else { continue };
                let found = position(target).or_else(|| *exports.get(target)?);
                if found.is_none_or(|found| found > own) {
                    violations.push(format!("{}: {}", file.display(), path.join("::")));
                }
            }
        }
        check(root, &inner, &module, violations);
    }
}

/// Returns the modules that a file declares, except those for tests.
fn modules(text: &str) -> Vec<String> {
    let file = syn::parse_file(text).expect("a file that compiles");
    let is_test = |attribute: &syn::Attribute| {
        attribute.to_token_stream().to_string().replace(' ', "") == "#[cfg(test)]"
    };
    let modules = file.items.into_iter().filter_map(|item| match item {
        Item::Mod(module) if !module.attrs.iter().any(is_test) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// Returns the files of a module: one, or those of a folder.
fn files(root: &Path, module: &Path) -> Vec<PathBuf> {
    let file = module.with_extension("rs");
    let mut files = if root.join(&file).is_file() { vec![file] } else { Vec::new() };
    for entry in fs::read_dir(root.join(module)).into_iter().flatten() {
        let path = module.join(entry.expect("a readable entry").file_name());
        match path.file_name().and_then(|name| name.to_str()) {
            Some("tests.rs" | "testing.rs") => {}
            Some(name) if name.ends_with(".rs") => files.push(path),
            _ => files.extend(self::files(root, &path)),
        }
    }
    files
}

/// Returns the module of a file in the folder of another module.
fn module_of(file: &Path, folder: &Path, module: &[String]) -> Vec<String> {
    let inner = file.strip_prefix(folder).unwrap_or(Path::new(""));
    let names = inner.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned()).filter(|name| name != "mod");
    module.iter().cloned().chain(names).collect()
}

#[test]
fn finds_what_a_file_imports() {
    let text = "
        use crate::{model::{self, Message}, Tool};
        pub(crate) fn f() -> crate::run::Step { crate::agent::ask(self.x) }
        /// See [`crate::Agent`].
        #[cfg(test)]
        #[cfg(test)]
        mod tests { use crate::memory::Window; }
        mod nested { #[cfg(test)] use crate::memory::Window; use super::super::{toolset::ToolSet, own}; }
        use super::super::transcript::Transcript;
        use super::sibling;
        use self::child::*;
        /// Tests.
        #[cfg(test)]
        mod more { use crate::memory::Window; }
    ";
    let found: Vec<_> = paths(text, &["a".into(), "b".into()]).iter().map(|path| path.join("::")).collect();
    let expected = [
        "model",
        "model::Message",
        "Tool",
        "",
        "run::Step",
        "agent::ask",
        "a::toolset::ToolSet",
        "a::own",
        "transcript::Transcript",
        "a::sibling",
        "a::b::child",
    ];
    assert_eq!(found, expected);
    assert_eq!(modules(text), ["nested"]);
}

/// Returns the paths from the root of the crate that stand in the items of this module that are not only for tests.
fn paths(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let file = syn::parse_file(text).expect("a file that compiles");
    let mut paths = Vec::new();
    find(file.to_token_stream(), module, &mut paths);
    paths
}

fn find(tokens: TokenStream, module: &[String], paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut position = 0;
    while position < tokens.len() {
        match &tokens[position..] {
            [TokenTree::Punct(hash), TokenTree::Group(attribute), ..]
                if hash.as_char() == '#' && attribute.to_string().replace(' ', "") == "[cfg(test)]" =>
            {
                position += 2;
                position += tokens[position..].iter().take_while(|token| !ends_item(token)).count() + 1;
            }
            [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Group(body), ..]
                if keyword == "mod" =>
            {
                let module: Vec<_> = module.iter().cloned().chain([name.to_string()]).collect();
                find(body.stream(), &module, paths);
                position += 3;
            }
            [TokenTree::Ident(root), rest @ ..] if root == "crate" || is_path(rest) && root == "super" => {
                position += read(&tokens[position..], module.to_vec(), paths);
            }
            [TokenTree::Ident(root), rest @ ..] if is_path(rest) && root == "self" => {
                position += read(&tokens[position..], module.to_vec(), paths);
            }
            [TokenTree::Group(group), ..] => {
                find(group.stream(), module, paths);
                position += 1;
            }
            _ => position += 1,
        }
    }
}

/// Reads a path behind a module, or all paths in the braces of a `use`. Returns the number of tokens.
fn read(tokens: &[TokenTree], mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let mut position = 0;
    loop {
        match tokens.get(position) {
            Some(TokenTree::Ident(name)) if name == "crate" => path.clear(),
            Some(TokenTree::Ident(name)) if name == "super" => drop(path.pop()),
            Some(TokenTree::Ident(name)) if name == "self" => {}
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let tokens: Vec<_> = group.stream().into_iter().collect();
                for tokens in
                    tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','))
                {
                    if !tokens.is_empty() {
                        read(tokens, path.clone(), paths);
                    }
                }
                return position + 1;
            }
            _ => break,
        }
        position += 1;
        if !is_path(&tokens[position..]) {
            break;
        }
        position += 2;
    }
    paths.push(path);
    position
}

/// Returns `true` if the tokens begin with `::`.
fn is_path(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    matches!(tokens, [first, second, ..] if is_colon(first) && is_colon(second))
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
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
