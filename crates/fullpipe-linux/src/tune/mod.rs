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
//! Before the first change, a journal with all former values is on disk (`journal.rs`), and a separate
//! process, the guard, is running (`guard.rs`). The guard reverts the changes at the deadline, or immediately
//! if the applying process dies early. If the guard was also killed, or if the host was rebooted, the next
//! command finds the journal and reverts the changes ([`settle`]). If another process holds the lock of the
//! state, an overdue trial is still reverted (`lock.rs`). Values that another program has changed in the
//! meantime are not restored. If the journal is damaged, all changes that are still readable are reverted
//! (`salvage.rs`).

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
mod salvage;
mod status;
mod timer;

pub(crate) use route::text_of as route_text;
pub(crate) use salvage::summary as journal_summary;

pub use apply::{
    AppliedChanges, RouteChange, SettingChange, Step, TakenBack, apply, confirm, rollback, settle,
};
pub use guard::{Guard, watch};
pub use journal::Phase;
pub use place::Target;
pub use read::facts;
pub use status::{Drift, State, Status, status};
