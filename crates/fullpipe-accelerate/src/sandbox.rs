//! System calls that the worker is permitted while it serves clients.
//!
//! All other system calls fail with EPERM. The worker is not killed, because a system call that only one
//! version of the C library makes must not end all connections. The worker can open stream sockets and use
//! the files that are already open; it can neither open files nor start programs.

use std::collections::BTreeMap;

use fullpipe_linux::Error;
use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter_all_threads,
};

use crate::system;

/// System calls that are permitted with any arguments.
const PERMITTED: &[c_long] = &[
    // Calls for packets, sockets and their events.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    libc::SYS_fcntl,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Call for the storage of the shared table.
    libc::SYS_pwrite64,
    // Calls for time and memory, and calls that the C library makes on its own.
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
/// System calls that exist only on older architectures.
#[cfg(target_arch = "x86_64")]
const PERMITTED_HERE: &[c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const PERMITTED_HERE: &[c_long] = &[];

/// Bits of a socket's type that are not flags (`SOCK_TYPE_MASK`).
const TYPE_MASK: u64 = 0xf;
/// Request that makes a descriptor non-blocking. Its type in `libc` depends on the C library.
const FIONBIO: u64 = 0x5421;

/// Restricts the system calls of this process permanently.
pub(crate) fn restrict() -> Result<(), Error> {
    let program = program().map_err(failed)?;
    apply_filter_all_threads(&program).map_err(failed)
}

fn failed(error: impl Into<seccompiler::Error>) -> Error {
    system("restrict the system calls of the worker", std::io::Error::other(error.into()))
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let when = |conditions: &[(u8, seccompiler::SeccompCmpOp, u64)]| {
        let condition = |(argument, operator, value): &(u8, seccompiler::SeccompCmpOp, u64)| {
            SeccompCondition::new(*argument, Dword, operator.clone(), *value)
        };
        SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
    };
    let stream_of =
        |family: i32| when(&[(0, Eq, family as u64), (1, MaskedEq(TYPE_MASK), libc::SOCK_STREAM as u64)]);
    let not_executable = || when(&[(2, MaskedEq(libc::PROT_EXEC as u64), 0)]);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        PERMITTED.iter().chain(PERMITTED_HERE).map(|call| (*call, Vec::new())).collect();
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];
    rules.insert(libc::SYS_socket, families.into_iter().map(stream_of).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_mmap, vec![not_executable()?]);
    rules.insert(libc::SYS_mprotect, vec![not_executable()?]);
    rules.insert(libc::SYS_ioctl, vec![when(&[(1, Eq, FIONBIO)])?]);
    rules.insert(libc::SYS_prctl, vec![when(&[(0, Eq, libc::PR_SET_TIMERSLACK as u64)])?]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind::PermissionDenied;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::thread;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    /// The test restricts only its own thread.
    #[test]
    fn only_what_the_worker_needs_is_permitted() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = server.local_addr().expect("an address");
        let restricted = thread::spawn(move || {
            seccompiler::apply_filter(&program().expect("a filter")).expect("it is supported");
            TcpStream::connect(address).expect("a stream socket");
            let refused = [
                File::open("/dev/null").map(drop),
                UdpSocket::bind("127.0.0.1:0").map(drop),
                Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).map(drop),
                Socket::new(Domain::PACKET, Type::RAW, None).map(drop),
                Command::new("true").status().map(drop),
            ];
            refused.map(|result| result.expect_err("a refusal").kind())
        });
        assert_eq!(restricted.join().expect("no panic"), [PermissionDenied; 5]);
    }
}
