//! Build time of tools: a crate of 200 tools with `#[tool]`, compared with the same hand-written tools with the derives of
//! serde and schemars. `cargo bench -p tests --bench build` prints the ratios, and fails if one exceeds its bound.
//!
//! Both crates use the same dependencies, which are built beforehand and not counted. The crates are built alternately and
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

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-bench");
    let ours = Crate::write(&folder, "with_tool", source::WITH_TOOL_DEPENDENCIES, &source::with_tool(TOOLS))?;
    let hand = Crate::write(&folder, "by_hand", source::BY_HAND_DEPENDENCIES, &source::by_hand(TOOLS))?;

    for one in [&ours, &hand] {
        one.cargo(&["check"])?;
        one.cargo(&["build", "--release"])?;
        assert_eq!(one.run()?, format!("{TOOLS} tools, 7.5"), "both crates produce the same output");
    }
    println!("{TOOLS} tools, median of {ROUNDS} rounds: with #[tool], by hand, ratio, bound");
    let check = compare("cargo check", &ours, &hand, &["check"])?;
    let release = compare("cargo build --release", &ours, &hand, &["build", "--release"])?;
    let (our_size, hand_size) = (ours.size()?, hand.size()?);
    let size = our_size as f64 / hand_size as f64;
    println!("stripped size          {our_size:>9} B {hand_size:>9} B  {size:.3}  {SIZE_BOUND}");

    let is_within = check <= CHECK_BOUND && release <= RELEASE_BOUND && size <= SIZE_BOUND;
    if is_within { Ok(()) } else { Err("a ratio exceeds its bound".into()) }
}

/// Builds both crates alternately and returns the ratio of the medians.
fn compare(title: &str, ours: &Crate, hand: &Crate, arguments: &[&str]) -> Result<f64> {
    let mut times = [Vec::new(), Vec::new()];
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
    let bound = if arguments[0] == "check" { CHECK_BOUND } else { RELEASE_BOUND };
    println!("{title:<22} {our_time:>9.2?}   {hand_time:>9.2?}    {ratio:.3}  {bound}");
    Ok(ratio)
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

    fn binary(&self) -> PathBuf {
        self.target.join("release").join(self.name).with_extension(std::env::consts::EXE_EXTENSION)
    }

    fn size(&self) -> Result<u64> {
        Ok(fs::metadata(self.binary())?.len())
    }

    /// Returns the output of the program: the number of tools, and the result of the last one.
    fn run(&self) -> Result<String> {
        let output = Command::new(self.binary()).stderr(Stdio::inherit()).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}
