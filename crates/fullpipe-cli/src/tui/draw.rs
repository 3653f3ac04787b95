//! Draws the state of a socket into the cells of a terminal, without I/O.
//!
//! ```text
//!   title, sockets           fullpipe  10.0.0.2:5201 (1 of 3)                12.3 s  FROZEN
//!   rate and its history     94.2 Mbit/s  ▂▃▅▇▇▇▇▇
//!   one bar per limit      ► cwnd        ██████████████████░░  97 %  1.2 MiB of 1.3 MiB
//!   figures                  RTT 104ms (least 100ms)   unsent 3 MiB   retransmits 12
//!   limit and evidence       cwnd: loss holds cwnd down (high confidence)
//!   keys                     q quit   f or space freeze   arrows choose
//! ```
//!
//! All information that is shown by colour is also shown by text or symbols.

use fullpipe::units::Rate;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Widget, Wrap};

use super::picture::{Bar, Picture};

/// Widths in columns of the name before a bar, and of the text after the bar.
const NAME: usize = 12;
const BEHIND: usize = 34;
/// Maximum length of a bar, in columns.
const LONGEST: usize = 60;

/// Selection of the displayed socket, and display options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Index of the displayed socket, and total number of sockets.
    pub(crate) chosen: usize,
    pub(crate) sockets: usize,
    pub(crate) frozen: bool,
    pub(crate) ended: bool,
    pub(crate) colour: bool,
}

/// Draws `picture`, or a message if there is no picture yet.
pub(crate) fn draw(picture: Option<&Picture>, view: View, area: Rect, buffer: &mut Buffer) {
    let Some(picture) = picture else {
        Paragraph::new("waiting for the first sample   q quit").render(area, buffer);
        return;
    };
    let bars = picture.bars.len() as u16;
    let [title, rate, past, gap, gauges, figures, limit, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Length(bars),
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    let _ = gap;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut head = vec![Span::styled("fullpipe", bold), Span::raw(format!("  {}", picture.name))];
    if view.sockets > 1 {
        head.push(Span::raw(format!(" ({} of {})", view.chosen + 1, view.sockets)));
    }
    head.push(Span::raw(format!("   {:.1} s", picture.at.as_secs_f64())));
    for (shown, word) in [(view.frozen, "FROZEN"), (view.ended, "ENDED")] {
        if shown {
            head.push(Span::styled(format!("   {word}"), bold));
        }
    }
    Line::from(head).render(title, buffer);

    let most = picture.rates.iter().copied().max().unwrap_or_default();
    let now = picture.rate.map_or("-".into(), |rate| rate.to_string());
    Line::from(vec![Span::styled(now, bold), Span::raw(format!("   most {most}"))]).render(rate, buffer);
    let columns = past.width as usize;
    let recent = &picture.rates[picture.rates.len().saturating_sub(columns)..];
    Sparkline::default()
        .data(recent.iter().map(|rate: &Rate| rate.as_bps()).collect::<Vec<_>>())
        .max(most.as_bps().max(1))
        .style(ink(view, Color::Cyan))
        .render(past, buffer);

    for (bar, row) in picture.bars.iter().zip(gauges.rows()) {
        bar_line(bar, view, row.width as usize).render(row, buffer);
    }
    let text = format!(
        "RTT {}   unsent {}   retransmits {}",
        picture.round_trip(),
        picture.notsent,
        picture.retransmits
    );
    Paragraph::new(vec![Line::default(), Line::from(text)]).render(figures, buffer);

    let mut lines =
        vec![Line::default(), Line::styled(picture.limit(), bold.patch(ink(view, Color::Yellow)))];
    if let Some(held) = &picture.held {
        lines.push(Line::from(held.evidence.clone()));
    }
    Paragraph::new(lines).wrap(Wrap { trim: true }).render(limit, buffer);
    let choose = if view.sockets > 1 { "   arrows choose" } else { "" };
    Line::from(format!("q quit   f or space freeze{choose}")).render(keys, buffer);
}

fn ink(view: View, colour: Color) -> Style {
    if view.colour { Style::new().fg(colour) } else { Style::new() }
}

fn bar_line(bar: &Bar, view: View, width: usize) -> Line<'static> {
    let length = width.saturating_sub(2 + NAME + BEHIND).clamp(4, LONGEST);
    let full = (bar.share * length as f64).round() as usize;
    let style =
        if bar.lit { ink(view, Color::Yellow).add_modifier(Modifier::BOLD) } else { ink(view, Color::Gray) };
    let mark = if bar.lit { "► " } else { "  " };
    let blocks = format!("{}{}", "█".repeat(full), "░".repeat(length - full));
    Line::from(vec![
        Span::styled(format!("{mark}{:<NAME$}", bar.gauge.name()), style),
        Span::styled(blocks, style),
        Span::styled(format!(" {:>3.0} %  {}", 100.0 * bar.share, bar.amounts), style),
    ])
}
