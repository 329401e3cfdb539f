//! What an API says, why a call is paced, and the manual: as a user runs them.

use paceline_cli::sandbox::{Config, Family, Sandbox};
use serde_json::Value;
use std::process::{Command, Output};

fn paceline(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.args(args).env_remove("PACELINE_STORAGE").output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

async fn sandbox(headers: Family, limits: &[&str]) -> Sandbox {
    let limits = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
    Sandbox::start(Config { headers, limits, ..Config::default() }).await.expect("a sandbox")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_tells_what_an_answer_says_and_what_is_made_of_it() {
    let sandbox = sandbox(Family::Openai, &["60/1m", "tokens=9000/1m"]).await;
    let url = format!("{}/v1/models", sandbox.url());
    let shown = paceline(&["probe", &url]);
    assert_eq!(shown.status.code(), Some(0));
    let shown = text(&shown.stdout);
    assert!(shown.contains("the answer is 200\n"), "{shown}");
    assert!(shown.contains("  x-ratelimit-limit-tokens: 9000\n"), "{shown}");
    assert!(shown.contains("from then on: "), "{shown}");
    let told = paceline(&["probe", &url, "--json"]);
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(told["status"], 200);
    assert_eq!(told["asserted"][0]["limit"], 60);
    assert_eq!(told["then"]["governing"]["dimensions"]["tokens"]["limit"], 9000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_of_what_says_nothing_or_is_not_there_says_so() {
    let sandbox = sandbox(Family::None, &[]).await;
    let silent = paceline(&["probe", &sandbox.url(), "--bearer-env", "PATH"]);
    assert_eq!(silent.status.code(), Some(1));
    assert!(text(&silent.stdout).contains("nothing governs"));
    let gone = paceline(&["probe", "http://127.0.0.1:1/"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("no answer came: cannot connect"));
    // As everywhere else, a bare host means https.
    let bare = paceline(&["probe", "127.0.0.1:1/x"]);
    assert_eq!((bare.status.code(), text(&bare.stderr)), (Some(1), text(&gone.stderr)));
    for (args, why) in [
        (&["probe", "nonsense://"][..], "nonsense"),
        (&["probe", "http://localhost", "--bearer-env", "NOT_SET"], "NOT_SET is not set"),
    ] {
        let bad = paceline(args);
        assert_eq!(bad.status.code(), Some(2), "{bad:?}");
        assert!(text(&bad.stderr).contains(why), "{bad:?}");
    }
}

#[test]
fn an_explanation_tells_which_limit_governs_and_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = format!("sqlite:///{}", folder.path().join("limits.db").display());
    let set = |endpoint, limit| paceline(&["set", "--storage", &storage, endpoint, limit]);
    assert!(set("api.example.com", "60/1m").status.success());
    assert!(set("api.example.com/search", "10/1m").status.success());
    let explain = |more: &[&str]| {
        let args = [&["explain", "--storage", &storage, "api.example.com/search/users"], more];
        paceline(&args.concat())
    };
    let words = text(&explain(&[]).stdout);
    assert!(words.starts_with("https://api.example.com/search governs"), "{words}");
    let told: Value = serde_json::from_slice(&explain(&["--json"]).stdout).expect("JSON");
    assert_eq!(told["governing"]["limit"], 10);
    assert_eq!(told["wider"][0]["limit"], 60);
    let nothing = paceline(&["explain", "--storage", &storage, "other.example.com"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stdout).contains("nothing governs"));
}

#[test]
fn the_manual_has_a_section_for_every_command() {
    let manual = text(&paceline(&["manual"]).stdout);
    let help = text(&paceline(&["--help"]).stdout);
    let commands = help.split("Commands:\n").nth(1).and_then(|it| it.split("\n\n").next());
    let lines = commands.unwrap_or_default().lines().filter_map(|it| it.strip_prefix("  "));
    let names = lines.filter(|it| !it.starts_with(' ')).filter_map(|it| it.split(' ').next());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    assert!(names.len() > 12, "{help}");
    for name in names {
        let section = format!(".SH \"PACELINE {}\"", name.to_uppercase());
        assert!(manual.contains(&section), "{section}");
    }
}
