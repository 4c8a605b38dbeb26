//! Who reads the API: programs with agents have modules with few names, those who extend the project have others, and nobody meets what is hidden.
//! The pages have few words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Item, UseTree, Visibility};

/// The modules for programs with agents.
const FOR_AGENTS: [&str; 8] = ["content", "model", "tool", "layer", "toolset", "run", "memory", "agent"];

/// The modules for those who extend the project.
const FOR_EXTENSIONS: [&str; 4] = ["store", "engine", "provider", "signatures"];

/// The greatest number of names that programs with agents meet, beside the functions that are layers.
const MAX_NAMES: usize = 130;

/// The greatest number of words of all pages, their samples and links included.
const MAX_WORDS: usize = 38_000;

/// The greatest number of lines of the README.
const MAX_README_LINES: usize = 120;

/// The hidden items by file, and what they are.
const HIDDEN: [(&str, usize, &str); 10] = [
    ("tool-core/src/agent/other_names/agent.rs", 8, "names of other frameworks"),
    ("tool-core/src/agent/other_names/answer.rs", 3, "names of other frameworks"),
    ("tool-core/src/agent/other_names/ask.rs", 3, "names of other frameworks"),
    (
        "tool-core/src/agent/other_names/builder.rs",
        13,
        "names of other frameworks, with the bounds that explain them",
    ),
    ("tool-core/src/agent/other_names/recovery.rs", 2, "a future that is no future: `start` is missing"),
    ("tool-core/src/lib.rs", 1, "`__private`"),
    ("tool-core/src/model/prices.rs", 2, "a method that explains which feature it needs"),
    ("tool-core/src/toolset/toolbox.rs", 1, "what `#[toolbox]` implements"),
    ("tool-macros/src/docs.rs", 1, "the input of a test"),
    ("tool-macros/src/lib.rs", 2, "what `tools!` and `call!` call"),
];

#[test]
fn programs_with_agents_meet_few_names() {
    let names: usize = FOR_AGENTS.into_iter().map(|module| exports(&file_of(module)).len()).sum();
    let testing = ["ScriptedModel", "check_run_store"].len();
    assert!(names + testing <= MAX_NAMES, "{} names", names + testing);
}

#[test]
fn what_extends_the_project_is_only_exported() {
    for module in FOR_EXTENSIONS {
        let file = file_of(module);
        assert!(items(&file).iter().all(|item| matches!(item, Item::Use(_))), "{module} defines something");
        assert!(!exports(&file).is_empty());
    }
}

#[test]
fn only_what_carries_a_message_or_is_for_macros_is_hidden() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&root).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            count_hidden(&source, &root, &mut found);
        }
    }
    let expected = HIDDEN.map(|(file, count, _)| (file.to_owned(), count));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

fn count_hidden(folder: &Path, root: &Path, found: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count_hidden(&path, root, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let count = text.lines().filter(|line| line.trim_start().starts_with("#[doc(hidden)]")).count();
            if count > 0 {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"), count);
            }
        }
    }
}

#[test]
fn the_pages_stay_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        // The pages of a crate, and those beside what they are about.
        for folder in [path.join("docs"), path.clone()] {
            add_pages(&folder, &mut pages);
        }
        if path.ends_with("tests") {
            fs::read_dir(path).unwrap().for_each(|entry| add_pages(&entry.unwrap().path(), &mut pages));
        }
    }
    add_pages(&root, &mut pages);
    let words = |page: &PathBuf| fs::read_to_string(page).unwrap().split_whitespace().count();
    let total: usize = pages.iter().map(words).sum();
    assert!(pages.len() > 50 && total <= MAX_WORDS, "{total} words in {} pages", pages.len());
    let lines = fs::read_to_string(root.join("README.md")).unwrap().lines().count();
    assert!(lines <= MAX_README_LINES, "the README has {lines} lines");
}

/// Adds the pages in a folder, and in its folder `guide`. Files named `links.md` are not pages: they define the targets of labels for rustdoc.
fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.ends_with("docs/guide") {
            add_pages(&path, pages);
        }
        if path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("links.md") {
            pages.push(path);
        }
    }
}

fn file_of(module: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let file = source.join(module).with_extension("rs");
    if file.exists() { file } else { source.join(module).join("mod.rs") }
}

fn items(file: &Path) -> Vec<Item> {
    syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items
}

/// Returns the names that a file exports.
fn exports(file: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for item in items(file) {
        match item {
            Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => add_names(&item.tree, &mut names),
            _ => {}
        }
    }
    names
}

fn add_names(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(part) => add_names(&part.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_names(tree, names)),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Glob(_) => panic!("names are exported one by one"),
    }
}
