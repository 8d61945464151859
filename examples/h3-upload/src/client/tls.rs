//! The check of the server's certificate.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, ensure};
use boring::ssl::{SslContextBuilder, SslMethod, SslVerifyMode};
use boring::x509::store::{X509Store, X509StoreBuilder};
use boring::x509::verify::X509CheckFlags;
use boring::x509::{X509, X509StoreContextRef};
use url::Host;

use crate::options::Trust;

/// Bundles that BoringSSL's default paths do not include on some systems.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
];

/// Makes TLS contexts that check the server's certificate.
pub(crate) struct Verifier {
    /// `None` accepts any certificate.
    roots: Option<X509Store>,
    host: Host<String>,
    refusal: Arc<OnceLock<String>>,
}

impl Verifier {
    /// Loads the roots, so that their errors are reported before the program sends anything.
    pub(crate) fn new(trust: &Trust, host: Host<String>) -> anyhow::Result<Self> {
        let roots = match trust {
            Trust::Any => None,
            Trust::Roots { cafile } => Some(roots(cafile.as_deref())?),
        };
        Ok(Self { roots, host, refusal: Arc::default() })
    }

    /// A verifier without a refusal, for another server of the same host.
    pub(crate) fn afresh(&self) -> Self {
        Self { roots: self.roots.clone(), host: self.host.clone(), refusal: Arc::default() }
    }

    /// Why the verifier refused the server's certificate, if it did.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    pub(crate) fn context(&self) -> anyhow::Result<SslContextBuilder> {
        let mut builder = SslContextBuilder::new(SslMethod::tls())?;
        let Some(roots) = &self.roots else {
            builder.set_verify(SslVerifyMode::NONE);
            return Ok(builder);
        };
        builder.set_verify(SslVerifyMode::PEER);
        builder.set_cert_store_ref(roots);
        let host = self.host.clone();
        let refusal = Arc::clone(&self.refusal);
        builder.set_cert_verify_callback(move |chain| {
            let verdict = verify(chain, &host);
            if let Err(reason) = &verdict {
                let _ = refusal.set(reason.clone());
            }
            verdict.is_ok()
        });
        Ok(builder)
    }
}

/// Checks the chain, and that the certificate is for the host of the URL. It compares a host name
/// with the certificate's DNS names, and an address with its IP addresses (RFC 9110, section
/// 4.3.4). It ignores the common name.
fn verify(chain: &mut X509StoreContextRef, host: &Host<String>) -> Result<(), String> {
    let broken = |_| "the certificate check itself failed".to_owned();
    let expected = chain.verify_param_mut();
    expected
        .set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS | X509CheckFlags::NEVER_CHECK_SUBJECT);
    match host {
        Host::Domain(name) => expected.set_host(name),
        Host::Ipv4(ip) => expected.set_ip((*ip).into()),
        Host::Ipv6(ip) => expected.set_ip((*ip).into()),
    }
    .map_err(broken)?;
    if chain.verify_cert().map_err(broken)? {
        return Ok(());
    }
    Err(match chain.verify_result() {
        Ok(()) => "the certificate is not valid".to_owned(),
        Err(error) => error.to_string(),
    })
}

fn roots(cafile: Option<&Path>) -> anyhow::Result<X509Store> {
    let mut store = X509StoreBuilder::new().context("cannot make a certificate store")?;
    // A system without roots is not an error, because --cafile may name the server's root.
    let _ = store.set_default_paths();
    for bundle in BUNDLES {
        if let Ok(pem) = std::fs::read(bundle) {
            add(&mut store, &X509::stack_from_pem(&pem).unwrap_or_default());
            break;
        }
    }
    if let Some(file) = cafile {
        let pem = std::fs::read(file)
            .with_context(|| format!("cannot read the root certificates in {}", file.display()))?;
        let certificates = X509::stack_from_pem(&pem).unwrap_or_default();
        ensure!(
            !certificates.is_empty(),
            "{} holds no certificate: --cafile needs a PEM file",
            file.display()
        );
        add(&mut store, &certificates);
    }
    Ok(store.build())
}

fn add(store: &mut X509StoreBuilder, certificates: &[X509]) {
    for certificate in certificates {
        // BoringSSL refuses a certificate that it cannot use. The rest of the bundle remains
        // usable.
        let _ = store.add_cert(certificate);
    }
}
