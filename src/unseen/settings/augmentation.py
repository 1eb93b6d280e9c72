"""Settings of augmentation. No torch."""

from typing import Annotated

from pydantic import Field, model_validator

from unseen.marks import NEUTRAL_AT_DEFAULT, Settings
from unseen.settings.names import Names


class AugmentSettings(Settings):
    """As in DomainBed where nothing else is said; all of it is done on whole batches."""

    crop_scale: float = Field(default=0.7, gt=0, le=1)
    """Smallest share of the area that a random crop keeps; 1: no crop."""
    flip: float = Field(default=0.5, ge=0, le=1)
    """Chance of a horizontal flip."""
    jitter: float = Field(default=0.3, ge=0, le=1)
    """Strength of brightness, contrast, saturation and hue changes."""
    grayscale: float = Field(default=0.1, ge=0, le=1)
    """Chance of losing all colour."""
    randaugment: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
    """Strength of random operations as in RandAugment (turn, shear, shift, brightness, contrast,
    sharpness, posterize, solarize, autocontrast, equalize); 1: up to the paper's largest."""
    randaugment_operations: Annotated[int, NEUTRAL_AT_DEFAULT] = Field(default=2, ge=1, le=8)
    """How many of those operations an image gets."""
    random_convolution: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
    """Chance that an image is mixed with itself under a random filter (RandConv): shapes stay,
    textures change."""
    amplitude_mix: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
    """Largest share of the Fourier amplitude that comes from an image of another training domain
    (FACT): it changes the look, the phase keeps the shapes."""
    erasing: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
    """Chance that a random rectangle (2 to 33 % of the area) is replaced by the image's mean."""
    mixstyle: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
    """Chance that an image gets channel statistics mixed with those of an image of another domain,
    at each of `mixstyle_stages`."""
    mixstyle_stages: Annotated[Names, NEUTRAL_AT_DEFAULT] = ()
    """Stages whose input is mixed: early ones, for example `blocks.1,blocks.2`."""
    mixstyle_alpha: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.1, gt=0, le=1)
    """α of Beta(α, α), from which the share of an image's own statistics is drawn."""

    @model_validator(mode="after")
    def _check(self) -> "AugmentSettings":
        if (self.mixstyle > 0) != bool(self.mixstyle_stages):
            raise ValueError(
                "mixstyle needs a chance and stages, such as mixstyle=0.5 "
                "mixstyle_stages=blocks.1,blocks.2; give both or none"
            )
        return self
