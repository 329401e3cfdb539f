//! What the system says of this process, and measurements in a process of their own.

use std::io::Write;

/// The argument that asks for one measurement, its name being the next.
pub(crate) const PROBE: &str = "--probe";

/// Runs the probe of that name in a fresh process, whose memory nobody used before.
pub(crate) fn probe(name: &str) -> Vec<f64> {
    let program = std::env::current_exe().expect("the path of this program");
    let output = std::process::Command::new(program).args([PROBE, name]).output();
    let output = output.expect("this program starts again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the figures of a probe")
}

/// Hands the figures of a probe to the process that asked.
pub(crate) fn answer(figures: &[f64]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, figures)?;
    out.flush()
}

/// Bytes in memory now, without what is mapped from files.
pub(crate) fn resident() -> f64 {
    let status = read("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.expect("RssAnon in /proc/self/status") * 1024.0
}

/// Seconds that all threads of this process have run on a processor.
pub(crate) fn cpu_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc/self/task");
    let nanos = threads.flatten().map(|thread| {
        let text = read(&thread.path().join("schedstat").to_string_lossy());
        text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
    });
    nanos.sum::<f64>() / 1e9
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
