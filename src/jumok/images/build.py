"""From the sections [encoder] and [decoder] of a recipe to a captioner: any image encoder with any decoder."""

from jaxtyping import Int, UInt8
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.images.encoder import GridEncoder, GridEncoderConfig, ImageEncoder, PatchEncoder, PatchEncoderConfig
from jumok.models.build import DECODERS, DecoderConfig
from jumok.models.encoder_decoder import Decoder, Prediction
from jumok.models.rnn.decoder import RnnDecoderConfig

EncoderConfig = GridEncoderConfig | PatchEncoderConfig
IMAGE_ENCODERS: dict[str, type[EncoderConfig]] = {"grid": GridEncoderConfig, "patches": PatchEncoderConfig}
"""The settings of each image encoder, by the `kind` of its section."""


class ImageCaptioner(nn.Module):
    """An image encoder and a decoder over its regions, trained together (Xu et al. 2015)."""

    def __init__(self, encoder: ImageEncoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, images: UInt8[Tensor, "batch 3 side side"], target_in: Int[Tensor, "batch target"]) -> Prediction:
        """Predict every next token of `target_in`; attention is over the regions, row by row."""
        prediction: Prediction = self.decoder(self.encoder(images), target_in)
        return prediction


def build_captioner(
    encoder_config: EncoderConfig, decoder_config: DecoderConfig, *, side: int, vocabulary: int
) -> ImageCaptioner:
    """A captioner of images `side` pixels high and wide; the same weights after the same torch.manual_seed."""
    if decoder_config.ties_source:
        raise ConfigError(
            f'decoder.tied = "{decoder_config.tied}" shares embeddings with the source, but an image has none; '
            'set decoder.tied = "output" or "none"'
        )
    if isinstance(decoder_config, RnnDecoderConfig) and decoder_config.copy:
        raise ConfigError("decoder.copy = true copies words of the source, but an image has none; set it to false")
    if isinstance(encoder_config, GridEncoderConfig):
        encoder: ImageEncoder = GridEncoder(encoder_config, side=side)
    else:
        encoder = PatchEncoder(encoder_config, side=side)
    decoder = DECODERS[decoder_config.kind].make(
        decoder_config, vocabulary=vocabulary, encoder_width=encoder.width, embedding=None
    )
    return ImageCaptioner(encoder, decoder)
