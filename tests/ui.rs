//! Invalid programs with one mistake each: every one must produce one message, which states what to write instead.
//!
//! The exact text is compared on the toolchain on which it was blessed; on any other, only the first line is
//! compared, which is this project's own. `TRYBUILD=overwrite cargo test --test ui` blesses. A part of the programs is
//! compiled, and all of them with `TESTS_EXHAUSTIVE=1`; `cargo test --test ui -- trybuild=NAME` selects by name.

/// Programs that must compile without a warning.
#[path = "ui/pass"]
mod pass {
    #[allow(clippy::non_minimal_cfg, reason = "the program tests an empty condition")]
    pub(crate) mod cfg;
    pub(crate) mod deprecated;
    pub(crate) mod in_functions;
    pub(crate) mod no_implicit_prelude;
    pub(crate) mod renamed_crate;
    pub(crate) mod strict_lints;
    pub(crate) mod user_traits;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::support::sampling::is_exhaustive;

/// The toolchain on which the `.stderr` files are blessed.
const BLESSED: &str = "rustc 1.95.";

/// The folder of programs with several mistakes in one item, and so several messages.
const SEVERAL: &str = "ui/several";

/// The folder of programs whose mistake rustc reports in its own words.
const RUSTC: &str = "ui/rustc";

/// The flags of rustc for the programs and their dependencies. By default, trybuild compiles the programs with one flag more than
/// it compiles the dependencies with, and cargo therefore compiles the dependencies twice.
const FLAGS: &str = "--cfg\x1ftrybuild\x1f--verbose\x1f-A\x1fdead_code\x1f--diagnostic-width=140";

fn main() {
    if std::env::var_os("CARGO_ENCODED_RUSTFLAGS").is_none() {
        // These flags take precedence over trybuild's own.
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(std::env::args_os().skip(1)).env("CARGO_ENCODED_RUSTFLAGS", FLAGS);
        let status = again.status().expect("this program runs");
        std::process::exit(status.code().unwrap_or(1));
    }
    run_right_programs();
    let programs = wrong_programs();
    assert!(programs.len() > 40, "the wrong programs are not where they should be");
    let selected = select(&programs);
    if is_blessed_toolchain() {
        compare(&selected);
    } else {
        compare_first_lines(&selected);
    }
    for program in &programs {
        let text = fs::read_to_string(program.with_extension("stderr")).unwrap();
        check_count(program, &text);
    }
}

fn run_right_programs() {
    let programs = [
        pass::cfg::main,
        pass::deprecated::main,
        pass::in_functions::main,
        pass::no_implicit_prelude::main,
        pass::renamed_crate::main,
        pass::strict_lints::main,
        pass::user_traits::main,
    ];
    assert_eq!(fs::read_dir("ui/pass").unwrap().count(), programs.len(), "each of them is run");
    programs.into_iter().for_each(|main| main());
}

fn is_blessed_toolchain() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc runs").stdout;
    let is_forced = std::env::var_os("UI_FIRST_LINES").is_some();
    String::from_utf8_lossy(&version).starts_with(BLESSED) && !is_forced
}

fn wrong_programs() -> Vec<PathBuf> {
    let folders = fs::read_dir("ui").unwrap().map(|folder| folder.unwrap().path());
    let folders = folders.filter(|folder| !folder.ends_with("pass"));
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let programs = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let mut programs: Vec<PathBuf> = programs.collect();
    programs.sort();
    programs
}

/// Returns the programs to compile: every third, because rustc takes a tenth of a second for each. All of them are
/// compiled if they are blessed, if some are selected by an argument, and in exhaustive tests.
fn select(programs: &[PathBuf]) -> Vec<PathBuf> {
    let is_sample =
        !is_exhaustive() && std::env::var_os("TRYBUILD").is_none() && std::env::args_os().len() == 1;
    programs.iter().step_by(if is_sample { 3 } else { 1 }).cloned().collect()
}

fn compare(programs: &[PathBuf]) {
    let cases = trybuild::TestCases::new();
    programs.iter().for_each(|program| cases.compile_fail(program));
}

/// Compiles copies without the blessed texts, and searches the output for the first line of each text.
fn compare_first_lines(programs: &[PathBuf]) {
    let copies = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    let printed = Path::new("wip");
    let _ = fs::remove_dir_all(&copies);
    let _ = fs::remove_dir_all(printed);
    fs::create_dir_all(&copies).unwrap();
    for program in programs {
        fs::copy(program, copies.join(flat_name(program))).unwrap();
    }
    // The cases run when they are dropped. Without texts to compare with, trybuild writes the output
    // into files and panics to report this; only the files are needed.
    let _ = std::panic::catch_unwind(|| {
        trybuild::TestCases::new().compile_fail(copies.join("*.rs"));
    });
    for program in programs {
        let text = fs::read_to_string(printed.join(flat_name(program)).with_extension("stderr")).unwrap();
        let blessed = fs::read_to_string(program.with_extension("stderr")).unwrap();
        let sentence = without_modules(own_sentence(program, &blessed));
        let is_found = without_modules(&text).contains(&sentence);
        assert!(is_found, "{}: `{sentence}` is not in:\n{text}", program.display());
        check_count(program, &text);
    }
    let _ = fs::remove_dir_all(printed);
}

/// Returns the first line without rustc's prefix and without paths, or an empty string if rustc wrote the message.
fn own_sentence<'a>(program: &Path, blessed: &'a str) -> &'a str {
    if program.starts_with(RUSTC) {
        return "";
    }
    let (_, sentence) = blessed.lines().next().and_then(|line| line.split_once(": ")).unwrap();
    let sentence = sentence.strip_prefix("evaluation panicked: ").unwrap_or(sentence);
    sentence.split('$').next().unwrap()
}

/// Removes the modules from paths: some toolchains print `std::string::String`, others `String`.
fn without_modules(text: &str) -> String {
    let is_in_module_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (modules, last) = text.rsplit_once("::").unwrap_or(("", text));
    let others = modules.split("::").map(|before| before.trim_end_matches(is_in_module_name));
    others.chain([last]).collect()
}

fn flat_name(program: &Path) -> String {
    program.strip_prefix("ui").unwrap().to_str().unwrap().replace(['/', '\\'], "_")
}

/// Checks that one mistake produces one message.
fn check_count(program: &Path, text: &str) {
    let count = text.lines().filter(|line| line.starts_with("error")).count();
    let is_right = if program.starts_with(SEVERAL) { count > 1 } else { count == 1 };
    assert!(is_right, "{} gives {count} messages:\n{text}", program.display());
}
