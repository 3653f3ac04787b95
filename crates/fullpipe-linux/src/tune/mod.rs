//! Changes to a host that can be reverted even after a crash or reboot.
//!
//! ```text
//!            apply                    confirm
//!   (old) ─────────► Applying ──► Trial ─────► Confirmed
//!     ▲                 │           │ deadline     │
//!     │   died, failed  ▼           ▼              │ rollback
//!     └──────────── Reverting ◄────────────────────┘
//! ```
//!
//! Before the first change a journal (`journal.rs`) with all former values is on disk, and a separate
//! process (`guard.rs`) watches: it reverts the changes at the deadline, and at once if the applying
//! process dies early. If the guard was killed as well, or the machine rebooted, the next command finds
//! the journal and does so ([`settle`]). Another holder of the state's lock cannot keep an overdue
//! trial in place (`lock.rs`). Values that something else has changed since are left as they are.

mod apply;
mod files;
mod guard;
mod holder;
mod journal;
mod lock;
mod log;
mod place;
mod read;
mod route;
mod status;
mod timer;

pub use apply::{
    AppliedChanges, RouteChange, SettingChange, Step, TakenBack, apply, confirm, rollback, settle,
};
pub use guard::{Guard, watch};
pub use journal::Phase;
pub use place::Target;
pub use read::facts;
pub use status::{Drift, State, Status, status};
