//! TLS 1.3 with raw public keys at both ends, and error messages for failed handshakes.

use std::io;
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};

use crate::error::Error;
use crate::keys::{AllowList, Fingerprint, Identity};
use crate::locked;

/// Name of the protocol in the TLS handshake (ALPN). The handshake fails if the peer speaks only another
/// version.
const PROTOCOL: &[u8] = b"fullpipe-copy/1";
/// Hint for a peer that speaks another version of the protocol.
pub(crate) const SAME_VERSION: &str = "install the same version of fullpipe at both ends";
/// Hint for a handshake that has failed for another reason.
const LISTENS: &str = "check that fullpipe relay serve listens on this port";
/// Server name that the API of rustls requires. The name is neither sent nor compared, because the key is
/// pinned.
const NO_NAME: &str = "relay.invalid";

/// Last key that a verifier has seen.
pub(crate) type SeenKey = Arc<Mutex<Option<Fingerprint>>>;

#[derive(Debug)]
struct PinnedRelay {
    expected: Option<Fingerprint>,
    seen: SeenKey,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct AllowedClients {
    allowed: AllowList,
    algorithms: WebPkiSupportedAlgorithms,
}

fn refused() -> rustls::Error {
    CertificateError::ApplicationVerificationFailure.into()
}

/// Methods that the verifiers of both ends have in common: TLS 1.3 with raw ed25519 keys.
macro_rules! raw_key_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.2 is not supported".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedRelay {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        *locked(&self.seen) = Some(found);
        if self.expected == Some(found) { Ok(ServerCertVerified::assertion()) } else { Err(refused()) }
    }

    raw_key_signatures!();
}

impl ClientCertVerifier for AllowedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let known = self.allowed.rights(Fingerprint::of(end_entity)).is_some();
        if known { Ok(ClientCertVerified::assertion()) } else { Err(refused()) }
    }

    raw_key_signatures!();
}

/// Returns the configuration of a client that accepts only a relay with the key `expected`. The relay's key
/// is stored in `seen`.
pub(crate) fn client(
    identity: &Identity,
    expected: Option<Fingerprint>,
    seen: SeenKey,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let mut config = builder
        .map_err(|error| Error::runtime(format!("TLS 1.3 is not available: {error}"), ""))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedRelay { expected, seen, algorithms }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &identity.key,
        ))));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A resumed session would not verify the key.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Returns the configuration of a relay that accepts the clients in `allowed`.
pub(crate) fn server(identity: &Identity, allowed: AllowList) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let mut config = builder
        .map_err(|error| Error::runtime(format!("TLS 1.3 is not available: {error}"), ""))?
        .with_client_cert_verifier(Arc::new(AllowedClients { allowed, algorithms }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&identity.key))));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the server name to pass to a handshake.
pub(crate) fn no_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(NO_NAME).map_err(|error| Error::runtime(format!("{NO_NAME}: {error}"), ""))
}

/// Converts the error of a handshake, or of the first bytes after it, into a message for the user of a
/// client.
pub(crate) fn handshake_error(
    relay: &str,
    error: &io::Error,
    own: Fingerprint,
    expected: Option<Fingerprint>,
    seen: &SeenKey,
) -> Error {
    let seen = *locked(seen);
    match (seen, expected) {
        (Some(seen), None) => {
            return Error::rights(
                format!("the key of {relay} has the fingerprint {seen}, which is not known"),
                format!("if fullpipe relay key prints the same fingerprint on {relay}, add --peer {seen}"),
            );
        }
        (Some(seen), Some(expected)) if seen != expected => {
            return Error::rights(
                format!("the key of {relay} has the fingerprint {seen} instead of {expected}"),
                "compare this fingerprint with the output of fullpipe relay key on the relay; if they \
                 differ, do not continue",
            );
        }
        _ => {}
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => Error::rights(
            format!("{relay} rejects the key of this host"),
            format!("start the relay with --allow {own}"),
        ),
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            Error::network(format!("{relay} uses another version of the protocol"), SAME_VERSION).refusal()
        }
        Some(rustls::Error::InvalidMessage(_)) => Error::network(
            format!("{relay} does not speak TLS"),
            "check the port: fullpipe relay serve listens on 9581 by default",
        )
        .refusal(),
        // A server without raw public keys may refuse them, or ignore that the client requires them.
        Some(
            rustls::Error::PeerIncompatible(_)
            | rustls::Error::AlertReceived(
                AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion,
            ),
        ) => Error::network(format!("{relay} speaks TLS, but is not a relay of fullpipe"), LISTENS).refusal(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::network(format!("{relay} closed the connection during the handshake"), LISTENS)
        }
        _ => Error::network(format!("cannot connect to {relay}: {error}"), LISTENS),
    }
}

/// Converts the error of a connection into a message for the user of a relay.
pub(crate) fn client_error(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => {
            "the client rejects the key of this relay".into()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            "--allow does not contain the key of the client".into()
        }
        Some(rustls::Error::InvalidMessage(_)) => "the client does not speak TLS".into(),
        Some(rustls::Error::NoApplicationProtocol) => {
            "the client uses another version of the protocol".into()
        }
        // The message of the TLS library for a killed client refers to a manual.
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "the client closed the connection".into(),
        _ => error.to_string(),
    }
}
