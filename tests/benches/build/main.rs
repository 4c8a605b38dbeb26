//! Build time of tools and assistants: a crate of 200 tools with `#[tool]`, compared with the same hand-written tools with the
//! derives of serde and schemars; and a crate with an `#[assistant]` of 50 methods, compared with 50 functions that call
//! `ask(format!(…)).answer_as()`. `cargo bench -p tests --bench build` prints the ratios, and fails if one exceeds its bound;
//! `-- tools` and `-- assistant` measure one of the two. The size of the tools is also compared in the profile that the production
//! checklist of the guide recommends.
//!
//! The crates of a pair use the same dependencies, which are built beforehand and not counted. The crates are built alternately and
//! without incremental compilation; the medians are compared.

mod source;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TOOLS: usize = 200;
const ROUNDS: usize = 5;

/// The bounds for our crate, as ratios to the hand-written crate.
const CHECK_BOUND: f64 = 0.35;
const RELEASE_BOUND: f64 = 0.30;
const SIZE_BOUND: f64 = 0.60;

const METHODS: usize = 50;

/// The bound for the crate with the assistant, for each kind of build.
const ASSISTANT_BOUND: f64 = 1.2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_chosen = |name: &str| chosen.as_ref().is_none_or(|chosen| chosen == name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-bench");
    let mut is_within = true;
    if is_chosen("tools") {
        is_within &= compare_tools(&folder)?;
    }
    if is_chosen("assistant") {
        is_within &= compare_assistants(&folder)?;
    }
    if is_within { Ok(()) } else { Err("a ratio exceeds its bound".into()) }
}

fn compare_tools(folder: &Path) -> Result<bool> {
    let ours = Crate::write(folder, "with_tool", source::WITH_TOOL_DEPENDENCIES, &source::with_tool(TOOLS))?;
    let hand = Crate::write(folder, "by_hand", source::BY_HAND_DEPENDENCIES, &source::by_hand(TOOLS))?;
    prepare([&ours, &hand], &format!("{TOOLS} tools, 7.5"))?;

    println!("{TOOLS} tools, median of {ROUNDS} rounds: with #[tool], by hand, ratio, bound");
    let check = compare(&ours, &hand, &["check"], CHECK_BOUND)?;
    let release = compare(&ours, &hand, &["build", "--release"], RELEASE_BOUND)?;
    let size = compare_sizes(&ours, &hand, "release", SIZE_BOUND)?;
    for one in [&ours, &hand] {
        one.cargo(&["build", "--profile", "production"])?;
    }
    let production_size = compare_sizes(&ours, &hand, "production", SIZE_BOUND)?;
    Ok(check && release && size && production_size)
}

fn compare_assistants(folder: &Path) -> Result<bool> {
    let dependencies = source::ASSISTANT_DEPENDENCIES;
    let ours = Crate::write(folder, "with_assistant", dependencies, &source::with_assistant(METHODS))?;
    let hand = Crate::write(folder, "questions", dependencies, &source::questions_by_hand(METHODS))?;
    prepare([&ours, &hand], &format!("{METHODS} sights"))?;

    println!("{METHODS} questions, median of {ROUNDS} rounds: with #[assistant], by hand, ratio, bound");
    let check = compare(&ours, &hand, &["check"], ASSISTANT_BOUND)?;
    let debug = compare(&ours, &hand, &["build"], ASSISTANT_BOUND)?;
    let release = compare(&ours, &hand, &["build", "--release"], ASSISTANT_BOUND)?;
    let size = compare_sizes(&ours, &hand, "release", ASSISTANT_BOUND)?;
    Ok(check && debug && release && size)
}

/// Builds the dependencies of both crates, and checks that both programs print this.
fn prepare(crates: [&Crate; 2], expected: &str) -> Result<()> {
    for one in crates {
        one.cargo(&["check"])?;
        one.cargo(&["build", "--release"])?;
        assert_eq!(one.run()?, expected, "both crates produce the same output");
    }
    Ok(())
}

/// Builds both crates alternately. Returns `true` if the ratio of the medians is within the bound.
fn compare(ours: &Crate, hand: &Crate, arguments: &[&str], bound: f64) -> Result<bool> {
    let mut times = [Vec::new(), Vec::new()];
    for one in [ours, hand] {
        one.cargo(arguments)?;
    }
    for _ in 0..ROUNDS {
        for (times, one) in times.iter_mut().zip([ours, hand]) {
            one.touch()?;
            let clock = Instant::now();
            one.cargo(arguments)?;
            times.push(clock.elapsed());
        }
    }
    let [our_time, hand_time] = times.map(median);
    let ratio = our_time.as_secs_f64() / hand_time.as_secs_f64();
    let title = format!("cargo {}", arguments.join(" "));
    println!("{title:<22} {our_time:>9.2?}   {hand_time:>9.2?}    {ratio:.3}  {bound}");
    Ok(ratio <= bound)
}

fn compare_sizes(ours: &Crate, hand: &Crate, profile: &str, bound: f64) -> Result<bool> {
    let (our_size, hand_size) = (ours.size(profile)?, hand.size(profile)?);
    let ratio = our_size as f64 / hand_size as f64;
    let title = format!("stripped, {profile}");
    println!("{title:<22} {our_size:>9} B {hand_size:>9} B  {ratio:.3}  {bound}");
    Ok(ratio <= bound)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A generated crate.
struct Crate {
    name: &'static str,
    folder: PathBuf,
    target: PathBuf,
}

impl Crate {
    fn write(folder: &Path, name: &'static str, dependencies: &str, source: &str) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let this = Self { name, folder: folder.join(name), target: folder.join("target") };
        fs::create_dir_all(this.folder.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[workspace]\n\n[profile.release]\nstrip = true\n\n\
             [profile.production]\ninherits = \"release\"\nlto = \"fat\"\ncodegen-units = 1\n\n\
             [dependencies]\n{}",
            dependencies.replace("ROOT", &root.display().to_string())
        );
        fs::write(this.folder.join("Cargo.toml"), manifest)?;
        // The locked versions of this workspace, so that nothing is downloaded.
        fs::copy(root.join("Cargo.lock"), this.folder.join("Cargo.lock"))?;
        fs::write(this.main(), source)?;
        Ok(this)
    }

    fn main(&self) -> PathBuf {
        self.folder.join("src/main.rs")
    }

    fn touch(&self) -> Result<()> {
        fs::write(self.main(), fs::read(self.main())?)?;
        Ok(())
    }

    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .arg("--quiet")
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("cargo {arguments:?} failed in {}", self.name).into())
        }
    }

    fn binary(&self, profile: &str) -> PathBuf {
        self.target.join(profile).join(self.name).with_extension(std::env::consts::EXE_EXTENSION)
    }

    fn size(&self, profile: &str) -> Result<u64> {
        Ok(fs::metadata(self.binary(profile))?.len())
    }

    /// Returns the output of the program: the number of tools, and the result of the last one.
    fn run(&self) -> Result<String> {
        let output = Command::new(self.binary("release")).stderr(Stdio::inherit()).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}
