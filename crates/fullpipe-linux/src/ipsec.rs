//! Detects IPsec policies of a network namespace. They apply to packets that the kernel routes, but not to
//! packets that nftables forwards without routing.

use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};

use crate::error::{Doing, Error};

/// Message types and flags from `linux/netlink.h` and `linux/xfrm.h`.
const NLMSG_ERROR: u16 = 2;
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Sizes of `struct nlmsghdr` and of `struct xfrm_userpolicy_id`, in bytes.
const HEADER: usize = 16;
const POLICY_ID: usize = 64;

/// Returns whether the network namespace of the calling thread has IPsec policies; `None` if the process may
/// not read them.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn has_policies() -> Result<Option<bool>, Error> {
    let mut socket = match Socket::new(NETLINK_XFRM) {
        Ok(socket) => socket,
        // Either the kernel has no IPsec, or its module is not loaded.
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Some(false)),
        Err(error) => return Err(Error::system("open a netlink socket", error)),
    };
    let mut ask = || {
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&request(), 0)?;
        socket.recv_from_full().map(|(answer, _)| answer)
    };
    Ok(judge(&ask().doing("list the IPsec policies")?))
}

/// Builds a request for all IPsec policies.
fn request() -> Vec<u8> {
    let len = (HEADER + POLICY_ID) as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(XFRM_MSG_GETPOLICY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.resize(HEADER + POLICY_ID, 0);
    bytes
}

/// Evaluates the first message of a reply: a policy, an error, or the end of the list.
fn judge(answer: &[u8]) -> Option<bool> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    match kind {
        XFRM_MSG_NEWPOLICY => Some(true),
        NLMSG_ERROR => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;

    #[test]
    fn the_first_message_decides() {
        let message = |kind: u16| [&[20, 0, 0, 0][..], &kind.to_ne_bytes(), &[0; 14]].concat();
        assert_eq!(judge(&message(XFRM_MSG_NEWPOLICY)), Some(true));
        assert_eq!(judge(&message(NLMSG_ERROR)), None);
        assert_eq!(judge(&message(3)), Some(false), "the end of the list");
        assert_eq!(judge(&[]), None);
    }

    /// A new namespace has no IPsec policies.
    #[test]
    fn a_new_namespace_has_none() {
        let Ok(namespace) = Namespace::new() else { return };
        assert_ne!(namespace.run(has_policies).expect("an answer"), Some(true));
    }
}
