//! Diagnoses, ladders, plans and experiments as text for a terminal and as HTML pages.

mod flow_counts;
#[cfg(feature = "html")]
pub mod html;
mod look;
mod measured;
mod offered_load;
mod page;
pub mod sockets;
mod text;
mod tune;
mod whatif;
mod wrapping;

pub use flow_counts::render_flow_counts;
pub use look::Look;
pub use measured::{render_latency, render_tcp_vs_udp};
pub use text::{render_brief, render_findings, render_ladder, render_text};
pub use tune::{render_plan, render_show};
pub use whatif::render_whatif;
pub use wrapping::columns;
