//! `paceline top`: a shared storage, live.

mod screen;
mod watch;

use crate::storage::StorageArgs;
use crate::{Failure, exit, times};
use clap::Args;
use paceline::Limiter;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use screen::{Order, Screen};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use watch::Watch;

/// Watch a shared storage: what is left of each limit, how fast it is used, and who waits
#[derive(Debug, Args)]
#[command(after_help = "\
Rates are those of the last five seconds. Workers hand in what they count about once a second.

  left     what would be granted now        used      the rate, as a share of what the limit allows
  rate     attempts a second                waiting   how many wait for a permit, on average
  429s     rejections a minute              refused   calls a minute that got an error in place of a wait
  binds    the limit of a scope that its calls wait for, or would first

Keys: q quits, s sorts by another column, arrows and PgUp/PgDn scroll, space stands still.

JSON is an object a line: at (RFC 3339), and rows with these names. New names may be added.

Exit status: 0; 1 when the storage cannot be reached; 2 when the command line makes no sense.")]
pub struct TopArgs {
    /// Only scopes that begin so, such as openai: or api.example.com
    #[arg(value_name = "SCOPE-PREFIX")]
    prefix: Option<String>,
    #[command(flatten)]
    storage: StorageArgs,
    /// How often to look
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = times::parse)]
    interval: Duration,
    /// Look so many times, and stop
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print JSON, a line each time
    #[arg(long)]
    json: bool,
}

/// The quickest that it looks: somebody else wants to use the storage, too.
const QUICKEST: Duration = Duration::from_millis(100);

/// Runs the command and tells the exit status.
///
/// # Errors
/// When the storage is unusable or cannot be reached.
pub fn top(args: &TopArgs) -> Result<u8, Failure> {
    let limiter = args.storage.open_existing()?;
    let interval = args.interval.max(QUICKEST);
    let mut watch = Watch::new(args.prefix.as_deref());
    if args.json || !io::stdout().is_terminal() {
        return print(args, &limiter, &mut watch, interval);
    }
    watch.look(&limiter)?;
    let mut screen = Screen::new(args.storage.shown());
    let mut terminal = ratatui::try_init()?;
    let outcome = live(args, &limiter, &mut watch, &mut screen, &mut terminal, interval);
    ratatui::restore();
    outcome
}

/// Without a terminal: a line or a table each time.
fn print(
    args: &TopArgs,
    limiter: &Limiter,
    watch: &mut Watch,
    interval: Duration,
) -> Result<u8, Failure> {
    // The first look has nothing to tell a rate by.
    watch.look(limiter)?;
    let mut looks = 0;
    while args.count.is_none_or(|most| looks < most) {
        pause(interval);
        watch.look(limiter)?;
        let shown = if args.json { watch.json()? } else { screen::table(&watch.rows()) };
        if writeln!(io::stdout(), "{shown}").is_err() {
            // Nobody reads any more.
            break;
        }
        looks += 1;
    }
    Ok(exit::OK)
}

#[allow(clippy::disallowed_methods)] // A command may wait.
fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn live(
    args: &TopArgs,
    limiter: &Limiter,
    watch: &mut Watch,
    screen: &mut Screen,
    terminal: &mut ratatui::DefaultTerminal,
    interval: Duration,
) -> Result<u8, Failure> {
    let (mut next, mut looks) = (Instant::now() + interval, 0);
    loop {
        terminal.draw(|frame| screen.draw(frame, watch))?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(exit::OK),
                    KeyCode::Char('c') if ctrl => return Ok(exit::OK),
                    KeyCode::Char('s') => screen.order = Order::after(screen.order),
                    KeyCode::Char(' ') => screen.stands_still ^= true,
                    KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
                    KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
                    KeyCode::PageDown => screen.scroll(10),
                    KeyCode::PageUp => screen.scroll(-10),
                    KeyCode::Home => screen.scroll(isize::MIN),
                    _ => {}
                }
            }
            continue;
        }
        if !screen.stands_still {
            // A storage that is away for a moment is no reason to leave.
            screen.trouble = watch.look(limiter).err().map(|error| error.to_string());
            looks += 1;
            if args.count.is_some_and(|most| looks >= most) {
                return Ok(exit::OK);
            }
        }
        next = Instant::now() + interval;
    }
}
