//! Rules about the sources of the library crates: a file imports only from those before it, and only the macros are pinned.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree};

/// The crates that are checked.
const CRATES: [&str; 12] = [
    "tool-anthropic",
    "tool-cli",
    "tool-core",
    "tool-http",
    "tool-macros",
    "tool-mcp",
    "tool-offline",
    "tool-openai",
    "tool-postgres",
    "tool-restate",
    "tool-testing",
    "tool-web",
];

/// The `mod` lines of `lib.rs`, and of the `mod.rs` of each folder, name the files lowest first. A file takes nothing from a later
/// one, nor from the `lib.rs` or `mod.rs` above it, which comes last, except what that exports from an earlier file of its
/// folder. Nothing is imported through the root.
#[test]
fn files_import_only_from_those_before_them() {
    let check = |name| {
        let sources = Sources::read(name);
        assert!(sources.modules.len() > 1, "the modules of {name} are not found");
        sources.violations()
    };
    let violations = CRATES.map(|name| thread::spawn(move || check(name)));
    let violations: Vec<_> = violations.into_iter().flat_map(|checked| checked.join().unwrap()).collect();
    assert!(violations.is_empty(), "imports against the order:\n{}", violations.join("\n"));
}

#[test]
fn finds_what_a_file_imports() {
    let text = "
        use crate::{model::Message, Tool, run::{self, Step as Other}};
        fn f() -> crate::run::Step { crate::agent::ask::<u8>(self.x) }
        /// See [`crate::Agent`].
        #[cfg(test)]
        mod tests { use crate::memory::Window; }
        mod nested { #[cfg(test)] use crate::memory::Window; use super::super::{toolset::ToolSet, own}; }
        pub(in crate::tool) use super::super::transcript::Transcript;
        use super::sibling;
        use self::nested::*;
        /// Tests.
        #[cfg(test)]
        mod more { use crate::memory::Window; }
    ";
    let expected = [
        "model::Message",
        "Tool",
        "run",
        "run::Step",
        "run::Step",
        "agent::ask",
        "tool::toolset::ToolSet",
        "tool::own",
        "tool",
        "transcript::Transcript",
        "tool::sibling",
        "tool::file::nested",
    ];
    let found: Vec<_> =
        imports(&parse(text), &path("tool::file")).iter().map(|found| found.join("::")).collect();
    assert_eq!(found, expected);
}

#[test]
fn finds_imports_against_the_order() {
    let mut sources = Sources { name: "tool-x", modules: HashMap::new() };
    let mut add = |module: &str, text: &str, children: &[&str]| {
        let module = path(module);
        let children = children.iter().map(|child| (*child).to_owned()).collect();
        sources.modules.insert(module.clone(), Module::new(&parse(text), &module, children));
    };
    add("", "mod low; mod folder; mod high; pub use self::high::High;", &["low", "folder", "high"]);
    add("low", "use crate::low::Own; use crate::high::High; use crate::High;", &[]);
    add("folder", "mod one; mod two; pub use self::two::Two; struct Here;", &["one", "two"]);
    add("folder::one", "use super::Two; use super::two; use super::Here; use crate::low;", &[]);
    add(
        "folder::two",
        "use super::one::One; fn f() { crate::folder::Two; } use super::super::high::High;",
        &[],
    );
    add("high", "use crate::folder::{Two, one::One};", &[]);
    let mut violations = sources.violations();
    violations.sort_unstable();
    let expected = [
        "tool-x/src/folder::one: folder::Here",
        "tool-x/src/folder::one: folder::Two",
        "tool-x/src/folder::one: folder::two",
        "tool-x/src/folder::two: high::High",
        "tool-x/src/low: High",
        "tool-x/src/low: high::High",
    ];
    assert_eq!(violations, expected);
}

/// The modules of a crate by their paths; the root's is empty.
struct Sources {
    name: &'static str,
    modules: HashMap<Vec<String>, Module>,
}

struct Module {
    /// The modules in files of their own, in order.
    children: Vec<String>,
    /// The paths behind the names that the module imports or exports.
    names: HashMap<String, Vec<String>>,
    imports: Vec<Vec<String>>,
}

impl Module {
    fn new(items: &[Item], module: &[String], children: Vec<String>) -> Self {
        let mut names = HashMap::new();
        for item in items {
            if let Item::Use(item) = item {
                collect_names(&item.tree, &[], module, &mut names);
            }
        }
        Self { children, names, imports: imports(items, module) }
    }
}

impl Sources {
    fn read(name: &'static str) -> Self {
        let mut sources = Self { name, modules: HashMap::new() };
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        sources.add(Vec::new(), read(&src.join("lib.rs")), &src);
        sources
    }

    /// Adds a module whose children are in this folder.
    fn add(&mut self, module: Vec<String>, mut items: Vec<Item>, folder: &Path) {
        let mut children = Vec::new();
        for item in &items {
            let Item::Mod(item) = item else { continue };
            let name = item.ident.to_string();
            let child = [&*module, std::slice::from_ref(&name)].concat();
            let (path, folder) = child_file(folder, &name);
            match &item.content {
                None => self.add(child, read(&path), &folder),
                Some((_, items)) if items.iter().any(is_in_file) => self.add(child, items.clone(), &folder),
                Some(_) => continue,
            }
            children.push(name);
        }
        // A module that has files is checked with these.
        items.retain(|item| {
            !matches!(item, Item::Mod(item) if item.content.iter().any(|(_, items)| items.iter().any(is_in_file)))
        });
        self.modules.insert(module.clone(), Module::new(&items, &module, children));
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (importing, module) in &self.modules {
            let bad = module.imports.iter().filter(|import| !self.is_allowed(importing, import));
            violations.extend(
                bad.map(|import| {
                    format!("{}/src/{}: {}", self.name, importing.join("::"), import.join("::"))
                }),
            );
        }
        violations
    }

    fn is_allowed(&self, importing: &[String], import: &[String]) -> bool {
        if importing.starts_with(import) {
            return true;
        }
        let Some(defining) = self.resolve(import) else { return true };
        let common = importing.iter().zip(&defining).take_while(|(one, other)| one == other).count();
        let folder = &importing[..common];
        if common == importing.len() {
            return true;
        }
        let position = |module: &[String]| {
            self.modules[folder].children.iter().position(|child| *child == module[common])
        };
        defining.len() > common && position(&defining) < position(importing)
    }

    /// Returns the module that defines an imported item, unless the item is another crate's. Exports of the root do not count.
    fn resolve(&self, import: &[String]) -> Option<Vec<String>> {
        for end in 0..import.len() {
            let (module, name) = (&import[..end], &import[end]);
            if self.modules.contains_key(&import[..=end]) {
                continue;
            }
            return match self.modules.get(module)?.names.get(name) {
                Some(path) if path.is_empty() => None,
                Some(path) if end > 0 && *path != import[..=end] => {
                    self.resolve(&[&**path, &import[end + 1..]].concat())
                }
                _ => Some(module.to_vec()),
            };
        }
        Some(import.to_vec())
    }
}

fn read(file: &Path) -> Vec<Item> {
    parse(&fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}

/// Returns the items of a file that are not only for tests.
fn parse(text: &str) -> Vec<Item> {
    let mut items = syn::parse_file(text).expect("a file that compiles").items;
    let is_for_tests = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|only| only == "test")
    };
    items.retain(|item| !matches!(item, Item::Mod(item) if item.attrs.iter().any(is_for_tests)));
    items
}

fn is_in_file(item: &Item) -> bool {
    matches!(item, Item::Mod(item) if item.content.is_none())
}

/// Returns the file of a module and the folder of its children.
fn child_file(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let own = folder.join(name);
    let file = own.with_extension("rs");
    if file.exists() { (file, own) } else { (own.join("mod.rs"), own) }
}

/// Collects the names that a `use` makes available. The path of an item of another crate is empty.
fn collect_names(
    tree: &UseTree,
    prefix: &[String],
    module: &[String],
    names: &mut HashMap<String, Vec<String>>,
) {
    match tree {
        UseTree::Path(part) => {
            collect_names(&part.tree, &[prefix, &[part.ident.to_string()]].concat(), module, names);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| collect_names(tree, prefix, module, names));
        }
        UseTree::Name(name) => {
            add_name(&name.ident.to_string(), &name.ident.to_string(), prefix, module, names)
        }
        UseTree::Rename(rename) => {
            add_name(&rename.ident.to_string(), &rename.rename.to_string(), prefix, module, names);
        }
        UseTree::Glob(_) => {}
    }
}

fn add_name(
    item: &str,
    name: &str,
    prefix: &[String],
    module: &[String],
    names: &mut HashMap<String, Vec<String>>,
) {
    let path = match prefix.first().map(String::as_str) {
        Some("crate" | "self" | "super") => {
            let mut path = start(&prefix[0], module);
            prefix[1..].iter().chain([&item.to_owned()]).for_each(|part| extend(&mut path, part));
            path
        }
        _ => Vec::new(),
    };
    names.insert(name.to_owned(), path);
}

/// Returns the module that the first part of a path stands for.
fn start(first: &str, module: &[String]) -> Vec<String> {
    match first {
        "crate" => Vec::new(),
        "super" => module[..module.len() - 1].to_vec(),
        _ => module.to_vec(),
    }
}

fn extend(path: &mut Vec<String>, part: &str) {
    match part {
        "self" => {}
        "super" => drop(path.pop()),
        _ => path.push(part.to_owned()),
    }
}

fn path(text: &str) -> Vec<String> {
    text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the paths that begin with `crate`, `self` or `super` in the items of a module that are not only for tests.
fn imports(items: &[Item], module: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    items.iter().for_each(|item| find(item.to_token_stream(), module, &mut paths));
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
                find(body.stream(), &[module, &[name.to_string()]].concat(), paths);
                position += 3;
            }
            [TokenTree::Ident(first), rest @ ..]
                if matches!(&*first.to_string(), "crate" | "self" | "super") && is_colons(rest) =>
            {
                position += 3 + find_tree(&tokens[position + 3..], start(&first.to_string(), module), paths);
            }
            [TokenTree::Group(group), ..] => {
                find(group.stream(), module, paths);
                position += 1;
            }
            _ => position += 1,
        }
    }
}

/// Finds the paths that continue `path` with these tokens, and returns the number of tokens of the last part.
fn find_tree(tokens: &[TokenTree], mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let mut position = 0;
    loop {
        match tokens.get(position) {
            Some(TokenTree::Ident(part)) => extend(&mut path, &part.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let parts: Vec<_> = group.stream().into_iter().collect();
                for part in
                    parts.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
                {
                    if !part.is_empty() {
                        find_tree(part, path.clone(), paths);
                    }
                }
                return position + 1;
            }
            // A glob, or the arguments of a type.
            _ => break,
        }
        position += 1;
        if !is_colons(&tokens[position..]) {
            break;
        }
        position += 2;
    }
    paths.push(path);
    position
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(colon) if colon.as_char() == ':');
    matches!(tokens, [one, other, ..] if is_colon(one) && is_colon(other))
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

/// The words by which a file of a world would name a rule of a run.
const RULES: [&str; 6] = ["exclusive", "layer", "limits", "max_cost", "policy", "retry"];

/// Where such words stand in the world of Restate, and why.
const NAMED: [(&str, &str, &str); 4] = [
    ("calls.rs", "limits", "an invocation that no time limit can end needs no handle"),
    ("steps.rs", "policy", "of the engine, for its recorded steps"),
    ("steps.rs", "retry", "of the engine, for its recorded steps"),
    ("tree.rs", "limits", "the agent's, which a recorded step has read and the run around it gets"),
];

/// The greatest number of public methods of a run.
const MAX_METHODS: usize = 65;

/// What a run offers is public and documented, in five families that its documentation lists.
#[test]
fn the_documentation_of_a_run_lists_its_methods() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut methods = Vec::new();
    add_methods_of_run(&core.join("src/run"), &mut methods);
    methods.sort();
    let text = fs::read_to_string(core.join("src/run/state.rs")).unwrap();
    let section = text.split("/// # Methods").nth(1).unwrap().split("/// # ").next().unwrap();
    let families: Vec<_> = section.split("**").skip(1).step_by(2).collect();
    assert_eq!(families, ["Create", "Read", "Step", "People", "Engine"]);
    let mut listed: Vec<_> = section.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    listed.sort();
    assert_eq!(methods, listed);
    assert!(methods.len() <= MAX_METHODS, "{} methods", methods.len());
}

/// Adds the names of the public methods of `Run` in the files of a folder, which are not hidden.
fn add_methods_of_run(folder: &Path, methods: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_methods_of_run(&path, methods);
            continue;
        }
        let items = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap().items;
        let blocks = items.into_iter().filter_map(|item| match item {
            Item::Impl(block) if block.trait_.is_none() => Some(block),
            _ => None,
        });
        for block in blocks.filter(|block| block.self_ty.to_token_stream().to_string() == "Run") {
            assert!(!is_hidden(&block.attrs), "{} hides methods of a run", path.display());
            for member in block.items {
                if let syn::ImplItem::Fn(method) = member
                    && matches!(method.vis, syn::Visibility::Public(_))
                {
                    assert!(!is_hidden(&method.attrs), "`Run::{}` is hidden", method.sig.ident);
                    methods.push(method.sig.ident.to_string());
                }
            }
        }
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
    })
}

/// A world hands outcomes to the run, which knows the rule of retries.
#[test]
fn the_server_of_mcp_leaves_retries_to_the_run() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tool-mcp/src/server");
    for entry in fs::read_dir(server).unwrap() {
        let mut names = Vec::new();
        add_names(fs::read_to_string(entry.unwrap().path()).unwrap().parse().unwrap(), &mut names);
        assert!(!names.iter().any(|name| name == "next_attempt"));
    }
}

/// A world decides where and when something is done, and contains no rule of a run.
#[test]
fn the_world_of_restate_names_no_further_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tool-restate/src/drive");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let tokens: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
        let mut names = Vec::new();
        add_names(tokens, &mut names);
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        for word in RULES {
            let is_part =
                |name: &String| name == word || name.to_lowercase().split('_').any(|part| part == word);
            let is_named =
                names.iter().any(|name| is_part(name) || word == "max_cost" && name.contains(word));
            found.extend(is_named.then(|| (file.clone(), word)));
        }
    }
    found.sort();
    let named: Vec<_> = NAMED.iter().map(|(file, word, _)| ((*file).to_owned(), *word)).collect();
    assert_eq!(found, named);
}

fn add_names(tokens: TokenStream, names: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_names(group.stream(), names),
            TokenTree::Ident(name) => names.push(name.to_string()),
            _ => {}
        }
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
