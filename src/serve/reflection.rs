//! gRPC reflection (v1, and v1alpha for older tools): what is served and described.
//!
//! Invariant: every listed service can be described. Envoy's services come without descriptors, so they are not listed.

use prost::Message;
use prost_types::FileDescriptorSet;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic_reflection::server::{Builder, Error};

use super::{ending::Ending, proto};

const HEALTH: &str = "grpc.health.v1.Health";

/// Adds both versions, for those of the `served` names that we have descriptors of, and for health. Their streams end at
/// `stop`.
pub fn add<'n>(
    routes: &mut RoutesBuilder,
    served: impl Iterator<Item = &'n str>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let described = described()?;
    let listed: Vec<_> = served.filter(|name| described.iter().any(|known| known == name)).collect();
    let builder = |own| {
        let builder = Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Not listed: so that tools can show the details of errors.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(HEALTH)
            .with_service_name(own);
        listed.iter().fold(builder, |builder, name| builder.with_service_name(*name))
    };
    let v1 = builder("grpc.reflection.v1.ServerReflection").build_v1()?;
    let v1alpha = builder("grpc.reflection.v1alpha.ServerReflection").build_v1alpha()?;
    routes.add_service(Ending::new(v1, stop.clone()));
    routes.add_service(Ending::new(v1alpha, stop.clone()));
    Ok(())
}

/// The full names of our services.
fn described() -> Result<Vec<String>, Error> {
    let files = FileDescriptorSet::decode(proto::DESCRIPTORS)?.file;
    let of_file = |file: &prost_types::FileDescriptorProto| {
        let services = file.service.iter();
        services.map(|service| format!("{}.{}", file.package(), service.name())).collect::<Vec<_>>()
    };
    Ok(files.iter().flat_map(of_file).collect())
}
