//! Changes to a host that can be taken back, whatever happens meanwhile.
//!
//! ```text
//!            apply                    confirm
//!   (old) ─────────► Applying ──► Trial ─────► Confirmed
//!     ▲                 │           │ deadline     │
//!     │   died, failed  ▼           ▼              │ rollback
//!     └──────────── Reverting ◄────────────────────┘
//! ```
//!
//! Before the first change a journal (`journal.rs`) is on disk with all former values, and a process of its own
//! (`guard.rs`) watches: it takes the changes back at the deadline, and at once when whoever applies dies before
//! the end. Where it was killed as well, or the machine was restarted, the next command finds the journal and
//! does it ([`settle`]). Whoever holds the lock of the state does not keep an overdue trial from ending (`lock.rs`).
//! What has been changed by somebody else since is theirs, and left as it is.

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
