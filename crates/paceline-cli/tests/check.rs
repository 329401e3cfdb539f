//! `paceline check`, as a user runs it.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MISTAKEN: &str = "\
max_wit = 5

[[scope]]
endpoint = \"api.example.com\"
limits = [\"1/1s\", \"9000/1h\"]
";

fn check(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("check").args(args).current_dir(folder).env_remove("PACELINE_CONFIG");
    command.output().expect("it runs")
}

#[test]
fn mistakes_are_told_with_their_lines_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("paceline.toml"), MISTAKEN).expect("written");
    let below = folder.path().join("src");
    fs::create_dir(&below).expect("a folder");
    let found = check(&below, &[]);
    assert_eq!(found.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&found.stdout);
    assert!(
        shown.contains("paceline.toml:1:1: wrong: unknown key \"max_wit\" [unknown-key]"),
        "{shown}"
    );
    assert!(shown.contains("    did you mean \"max_wait\"?"), "{shown}");
    assert!(shown.contains("paceline.toml:5:19: doubtful: 9000/1h never binds"), "{shown}");
    assert!(shown.ends_with("1 wrong, 1 doubtful\n"), "{shown}");
    let told: Value = serde_json::from_slice(&check(&below, &["--json"]).stdout).expect("JSON");
    assert_eq!((&told[0]["line"], &told[1]["error"]), (&1.into(), &false.into()));
}

#[test]
fn what_is_only_doubtful_is_wrong_when_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let doubtful = MISTAKEN.replace("max_wit", "max_wait");
    fs::write(folder.path().join("limits.toml"), doubtful).expect("written");
    assert_eq!(check(folder.path(), &["limits.toml"]).status.code(), Some(0));
    assert_eq!(check(folder.path(), &["limits.toml", "--strict"]).status.code(), Some(1));
    let missing = check(folder.path(), &["other.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read other.toml"));
    assert_eq!(check(Path::new("/"), &[]).status.code(), Some(2));
}
